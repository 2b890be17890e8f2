package core

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// VendorError returns the code and message of a vendor's error, which is a string or an object, maybe with further
// errors inside. The innermost informative one counts.
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
