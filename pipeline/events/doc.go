// Package events reads what workers have stored: events ([Read], [Outlines]), dead letters ([DeadLetters],
// [Requeue]), gaps and rewritten files of sessions, and the places where a stream differs from what a reader has read
// ([Marks]).
//
// Readers never change progress: a reader that stops leaves nothing behind on the broker.
package events
