package terminal

// Style is the parameter of the escape sequence that styles text.
type Style string

// The styles of this program.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)
