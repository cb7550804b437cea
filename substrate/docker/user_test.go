package docker

import "testing"

// TestDockerMapUID checks which user of the host owns the folder of an instance whose engine has
// userns-remap, or is rootless.
func TestDockerMapUID(t *testing.T) {
	const remap, rootless = "         0     231072      65536\n", "         0       1000          1\n         1     100000      65536\n"
	for _, tt := range []struct {
		text      string
		uid, want int
	}{
		{remap, 0, 231072},
		{remap, 1000, 232072},
		{remap, 70000, 70000}, // no user of the container
		{rootless, 0, 1000},
		{rootless, 1000, 100999},
		{"", 1000, 1000},
	} {
		if got := mapUID(tt.text, tt.uid); got != tt.want {
			t.Errorf("user %d of %q: got %d, want %d", tt.uid, tt.text, got, tt.want)
		}
	}
}
