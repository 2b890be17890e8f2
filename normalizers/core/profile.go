package core

// Profile names the shapes of the tool_metadata of events. The zero value counts as
// [ProfileOpenCode].
type Profile string

// The profiles.
const (
	ProfileOpenCode Profile = "opencode" // the shapes that OpenCode documented
	ProfileCurrent  Profile = "current"  // the shapes that OpenCode has now
)
