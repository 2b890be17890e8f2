package normalizers

import "github.com/go-json-experiment/json/jsontext"

// problemOf is the code and the message of an error that a vendor wraps: a word, or an
// object with more of them inside. The innermost one that says something counts.
func problemOf(v jsontext.Value) (code, message string) {
	if v.Kind() == '"' {
		return unquote(v), ""
	}
	for level := 0; level < 8 && v.Kind() == '{'; level++ {
		var at vendorError
		readObject(v, &at)
		for _, t := range []text{scalar(at.Code), at.Type, scalar(at.Status)} {
			if t != "" && t != "error" {
				code = string(t)
				break
			}
		}
		for _, t := range []text{at.Message, at.Formatted} {
			if t != "" {
				message = string(t)
				break
			}
		}
		v = at.Error
	}
	return code, message
}

type vendorError struct {
	Status    jsontext.Value `json:"status"`
	Code      jsontext.Value `json:"code"`
	Type      text           `json:"type"`
	Message   text           `json:"message"`
	Formatted text           `json:"formatted"`
	Error     jsontext.Value `json:"error"`
}

// scalar is a string or a number as text; empty for any other value.
func scalar(v jsontext.Value) text {
	switch v.Kind() {
	case '"':
		return text(unquote(v))
	case '0':
		return text(v)
	default:
		return ""
	}
}
