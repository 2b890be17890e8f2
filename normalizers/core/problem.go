package core

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// VendorError is the code and the message of an error that a vendor wraps: a word, or an
// object with more of them inside. The innermost one that says something counts.
func VendorError(v jsontext.Value) (code, message string) {
	if v.Kind() == '"' {
		return lenient.Unquote(v), ""
	}
	for level := 0; level < 8 && v.Kind() == '{'; level++ {
		var at wrappedError
		lenient.ReadObject(v, &at)
		for _, t := range []lenient.Text{lenient.Scalar(at.Code), at.Type, lenient.Scalar(at.Status)} {
			if t != "" && t != "error" {
				code = string(t)
				break
			}
		}
		for _, t := range []lenient.Text{at.Message, at.Formatted} {
			if t != "" {
				message = string(t)
				break
			}
		}
		v = at.Error
	}
	return code, message
}

type wrappedError struct {
	Status    jsontext.Value `json:"status"`
	Code      jsontext.Value `json:"code"`
	Type      lenient.Text   `json:"type"`
	Message   lenient.Text   `json:"message"`
	Formatted lenient.Text   `json:"formatted"`
	Error     jsontext.Value `json:"error"`
}
