// Package sessions sums up sessions from their events: one session ([Fold], [Summary]), all sessions of a generation
// ([Each]), and statistics over all of them by day, model and other dimensions ([Stats]). It also makes titles from
// prompts and from answers of models ([FallbackTitle], [SanitizeTitle]).
//
// Everything is a pure function of the events, and needs no broker. What is stored of sessions is in the packages below,
// which import this one and never each other:
//
//   - summaries stores the record of each session and keeps it up to date with the events.
//   - titles stores the titles and pins that people and programs set.
//   - prices reads price files and computes the cost of tokens.
//
// Start with [Fold]. The invariant: adding an event that a fold has already changes nothing.
package sessions
