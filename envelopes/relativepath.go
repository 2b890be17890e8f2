package envelopes

import "strings"

// relativize returns path relative to root if path is absolute and the relative form is shorter and climbs at most
// one level. It returns any other path unchanged.
//
// The paths come from the machine of the log, so relativize supports slashes, and a drive with backslashes or
// slashes.
func relativize(path, root string) string {
	drive, to, ok := splitAbsolute(path)
	rootDrive, from, rootOK := splitAbsolute(root)
	if !ok || !rootOK || !strings.EqualFold(drive, rootDrive) {
		return path
	}
	same := 0
	for same < len(from) && same < len(to) && from[same] == to[same] {
		same++
	}
	up := len(from) - same
	if up >= 2 {
		return path
	}
	parts := to[same:]
	if up == 1 {
		parts = append([]string{".."}, parts...)
	}
	separator := "/"
	if strings.Contains(path, `\`) && drive != "" {
		separator = `\`
	}
	relative := strings.Join(parts, separator)
	if relative == "" {
		relative = "."
	}
	if len(relative) >= len(path) {
		return path
	}
	return relative
}

// splitAbsolute returns the drive and the names of an absolute path, with ".", ".." and empty
// names resolved; false for a relative path.
func splitAbsolute(path string) (drive string, names []string, ok bool) {
	isSeparator := func(c rune) bool { return c == '/' }
	if len(path) >= 3 && path[1] == ':' && (path[2] == '\\' || path[2] == '/') {
		drive, path = path[:2], path[2:]
		isSeparator = func(c rune) bool { return c == '/' || c == '\\' }
	} else if !strings.HasPrefix(path, "/") {
		return "", nil, false
	}
	for _, name := range strings.FieldsFunc(path, isSeparator) {
		switch name {
		case ".":
		case "..":
			names = names[:max(0, len(names)-1)]
		default:
			names = append(names, name)
		}
	}
	return drive, names, true
}
