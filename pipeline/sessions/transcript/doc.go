// Package transcript makes the conversation of a session from its events: turns, calls with their results, and the
// work of subagents below the calls that began it. Pages and terminals decide what to show of it.
//
// Start with [Read], which reads the events of one session, then [Transcript.Turns] and [Transcript.Items].
//
// The invariant: every event of the session is in one item of one turn, and the tokens of all turns add up to those
// of the session. The texts of a long session are in a temporary file; only the places of items are in memory.
package transcript
