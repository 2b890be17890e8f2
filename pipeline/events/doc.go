// Package events reads what workers have stored: events ([Read], [Outlines]), dead letters ([DeadLetters], [Requeue]),
// gaps and rewritten files of sessions, and the places at which a reader and a stream part ([Marks]).
//
// Readers never change progress: a consumer that stops leaves nothing behind on the broker.
package events
