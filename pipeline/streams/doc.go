// Package streams says what the broker holds of a deployment, and changes it: the streams and buckets ([Topology],
// [Provision]), how partitions are spread over them ([Layout]), the generations and their settings ([Generation],
// [Settings]), the progress of each partition ([Checkpoint]), and the heartbeats of workers and edges.
//
// Everything here is stored and outlives the program. A change of what is stored must be read by the version before it.
package streams
