// Package streams describes and changes what the broker stores of a deployment: streams and buckets ([Topology],
// [Provision]), partitions and cells ([Layout]), generations and their settings ([Generation], [Settings]), the
// progress of each partition ([Checkpoint]), and the heartbeats of workers and edges.
//
// Everything here is stored and outlives the program. The previous version must be able to read every change.
package streams
