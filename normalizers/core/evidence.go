package core

import "slices"

// Evidence is what the rules of a vendor were made from, and what its logs do not state. The matrix of package normalizers'
// README.md and tributary agents print it.
type Evidence struct {
	// Versions are those of the agent whose logs were read; empty if no log states one.
	Versions string
	// Read is what was read to make the rules.
	Read []Basis
	// Lacks is what no log of the agent states. A test compares it with the cases of the vendor; an independent reader
	// compares the other facts with the events of every log there is.
	Lacks []Fact
	// Limits is what is not read, for people; empty for nothing that is known.
	Limits string
}

// Basis is something that rules were made from.
type Basis string

// The bases.
const (
	RealLogs Basis = "real logs"
	Fixtures Basis = "fixtures" // logs that others made for tests
	Code     Basis = "code"     // of the agent, or the documentation of its format
)

// Fact is something that a log may state.
type Fact string

// The facts.
const (
	Texts     Fact = "texts"  // of humans and the assistant
	Calls     Fact = "calls"  // of tools, with their results
	ExitCodes Fact = "exits"  // of commands
	TokenSums Fact = "tokens" // of API calls
	Times     Fact = "times"
	Models    Fact = "models"
	Subagents Fact = "subagents"
)

// Facts lists all facts.
var Facts = []Fact{Texts, Calls, ExitCodes, TokenSums, Times, Models, Subagents}

// States returns what logs of the agent state, in the order of [Facts].
func (e *Evidence) States() []Fact {
	return slices.DeleteFunc(slices.Clone(Facts), func(f Fact) bool { return slices.Contains(e.Lacks, f) })
}
