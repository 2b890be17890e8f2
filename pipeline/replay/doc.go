// Package replay has the operations on generations: start one beside the live one ([Start]), compare two ([Compare]),
// make one live and go back ([Promote], [RollBack]), drop one ([Drop]), and read the progress of each ([ReadStatus],
// [ReadProgress], [ReadExpired]).
//
// Every command first writes a mark, so if it is killed between two requests, running it again finishes it.
package replay
