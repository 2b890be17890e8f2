// Package replay is what an operator does with generations: start one beside the live one ([Start]), compare two
// ([Compare]), make one live and go back ([Promote], [RollBack]), drop one ([Drop]), and see how far each is
// ([ReadStatus], [ReadProgress], [ReadExpired]).
//
// A command that is killed between any two requests leaves a mark that it wrote first, and the same command finishes it.
package replay
