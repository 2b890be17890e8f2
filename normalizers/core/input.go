package core

import (
	"tributary/normalizers/lenient"
)

// FileInput has the members of a tool's input that name a file, or describe a command.
type FileInput struct {
	lenient.Data

	FilePath     lenient.Text     `json:"file_path"`
	NotebookPath lenient.Text     `json:"notebook_path"`
	Path         lenient.Text     `json:"path"`
	Command      lenient.Text     `json:"command"`
	Description  lenient.NullText `json:"description"`
}

// File returns the file named in the input; empty for none.
func (i *FileInput) File() string {
	for _, p := range []lenient.Text{i.FilePath, i.NotebookPath, i.Path} {
		if p != "" {
			return string(p)
		}
	}
	return ""
}
