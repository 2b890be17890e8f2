package core

import "tributary/normalizers/lenient"

// maxOpenCalls is how many calls of a session are remembered for an end that does not state their id.
const maxOpenCalls = 32

// OpenCalls are calls that one channel of a session has stated with an id that the other one does not state. A
// statement without the id belongs to the oldest call with its name and arguments. The value is never changed in place.
type OpenCalls Window[openCall]

type openCall struct {
	Key Fingerprint `json:"k"`
	ID  string      `json:"i"`
}

// CallKey returns what identifies a call without an id: its name, and the text of its arguments, nil for none.
func CallKey(name lenient.Text, arguments *string) Fingerprint {
	if arguments == nil {
		return FingerprintOf(string(name))
	}
	return FingerprintOf(string(name), *arguments)
}

// Add adds a call.
func (o *OpenCalls) Add(key Fingerprint, id string) {
	if len(id) <= MaxIdentity {
		*o = OpenCalls(Window[openCall](*o).Push(openCall{key, id}, maxOpenCalls, nil))
	}
}

// Take removes the oldest call with a key. It returns its id; empty for none.
func (o *OpenCalls) Take(key Fingerprint) (id string) {
	for _, c := range *o {
		if c.Key == key {
			o.Remove(c.ID)
			return c.ID
		}
	}
	return ""
}

// Remove removes the call of an id.
func (o *OpenCalls) Remove(id string) {
	*o = OpenCalls(Window[openCall](*o).Without(func(c openCall) bool { return c.ID == id }))
}

// Size returns the approximate bytes of the calls.
func (o OpenCalls) Size() (n int) {
	for _, c := range o {
		n += 32 + len(c.ID)
	}
	return n
}
