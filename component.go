package vitrine

import "regexp"

// A Flavor is the resources given to one instance, like an OpenStack flavor:
// NFV-VITAL's cw1.small is {"small", 1, 2 GiB}.
type Flavor struct {
	Name   string
	VCPUs  float64 // CPUs, decimal; 0.1 is a tenth of one CPU
	Memory int64   // bytes
	Pin    bool    // give the instance CPUs of its own, even when the plan does not pin
	Price  float64 // of one instance, in a currency and time unit of the user's choice; 0: no price
}

// Initial returns the letter that stands for the flavor in a sizing's name.
func (f Flavor) Initial() byte { return f.Name[0] }

// A Component is one kind of instance in a network function.
type Component struct {
	Name     string // "sprout"
	Short    string // "sp", as in bn1s-sp1s-hs1s
	Scalable bool   // false: fixed count and flavor, outside names and limits (Homer in the paper)
}

var instanceName = regexp.MustCompile(`^(.+)-[1-9][0-9]*$`)

// ComponentOf returns the component of an instance by the instance's name: sprout of sprout-1. It
// returns an empty name if the name does not end in a dash and a number from 1.
func ComponentOf(instance string) string {
	if m := instanceName.FindStringSubmatch(instance); m != nil {
		return m[1]
	}
	return ""
}

// A Command is a program to run; Args[0] is the program. No shell is involved.
type Command struct {
	Args []string
	Env  []string // KEY=value; replaces the environment except PATH and HOME
	Dir  string   // working folder; empty: the instance's own

	Stdout string // file to append standard output to; empty: the instance's log
}
