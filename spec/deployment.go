package spec

import (
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine"
	"vitrine/document"
)

// A Deployment describes a network function: its components, the flavors of its
// instances and the sizes to measure (NFV-VITAL, section III, "User Input").
type Deployment struct {
	document.File `yaml:"-"`

	VNFName    string           `yaml:"vnf_name" jsonschema:"required,format=vnf-name"`       // Name of the function, as shown in reports.
	Stateful   bool             `yaml:"stateful" jsonschema:"default=false"`                  // Deploy afresh after an overloaded trial; otherwise the function only gets time to settle.
	Components []Component      `yaml:"components" jsonschema:"required,minItems=1"`          // Components of the function; the scalable ones appear in a sizing's name in this order.
	Flavors    []Flavor         `yaml:"flavors" jsonschema:"required,minItems=1,maxItems=26"` // CPU and memory sizes for instances.
	Servers    Servers          `yaml:"servers"`                                              // Where and how instances run; an option with several values adds a dimension to the plan.
	Install    []Install        `yaml:"install"`                                              // Scripts that run in each instance before its command starts.
	Counts     map[string]Count `yaml:"instances"`                                            // Number of instances by component. Not scalable: the exact number, by default 1. Scalable: min and max.
	Mode       Mode             `yaml:"mode" jsonschema:"required"`                           // Which sizes to measure.
}

// A Component is one kind of instance that the function is made of.
type Component struct {
	Name         string           `yaml:"name" jsonschema:"required,format=name"`        // Unique name; instances are named after it: sprout-1.
	Short        string           `yaml:"short" jsonschema:"required,format=short-name"` // Unique short name, which stands for the component in a sizing's name: sp in bn1s-sp2m-hs1l.
	Scalable     bool             `yaml:"scalable" jsonschema:"default=true"`            // If false, the component has a fixed flavor and count, and does not count in size names and limits.
	Flavor       string           `yaml:"flavor"`                                        // Fixed flavor; only for a component that is not scalable.
	Image        string           `yaml:"image" jsonschema:"minLength=1"`                // Docker image reference, or the name of an application's image. Without it, substrates that need an image build it from the static program command[0].
	Command      Args             `yaml:"command"`                                       // Program and arguments, run without a shell. ${NAME} is replaced by a variable of the instance's environment. The program vitrine is the running binary; a relative path with a slash starts from the file's folder.
	Environment  document.Strings `yaml:"environment"`                                   // Environment of each instance. ${NAME} is replaced by a variable that every instance gets: ADDRESS, VITRINE_DIR, VITRINE_INDEX, VITRINE_INSTANCE, VITRINE_NUMBER, VITRINE_SIZING, VITRINE_SPEC, and the addresses of other instances.
	Ports        map[string]int   `yaml:"ports"`                                         // Port numbers, by the names that the rest of the file uses.
	Entry        string           `yaml:"entry"`                                         // Name of the port that receives the load, on every instance. At least one component has an entry. If several do, the load goes to the first of them that the size has.
	Dependencies []Dependency     `yaml:"dependencies"`                                  // Components that start before it, and the variables with their addresses.
	Cluster      *Cluster         `yaml:"cluster"`                                       // How its instances learn each other's addresses; without it, they do not.
	Ready        *Ready           `yaml:"ready"`                                         // Check that an instance is ready; without it, an instance is ready as soon as its command runs.
	User         string           `yaml:"user" jsonschema:"format=user"`                 // User that the command, the readiness check and install scripts run as: USER or USER:GROUP, by name or number. With an image it is a user of the image, else of the host. By default the image's user, or the user of vitrine.

	AllowPrivilegeEscalation bool `yaml:"allow_privilege_escalation" jsonschema:"default=false"` // If true, programs with the setuid bit or file capabilities, such as ping and sudo, may gain privileges. In virtual machines they always may.
}

// UnmarshalYAML decodes the component on top of its defaults.
func (c *Component) UnmarshalYAML(n *yaml.Node) error {
	type plain Component
	*c = Component{Scalable: true}
	return n.Decode((*plain)(c))
}

// A Dependency is a component that starts earlier, and the variable with its
// addresses.
type Dependency struct {
	Component string `yaml:"component" jsonschema:"required"` // The component's name.
	As        string `yaml:"as" jsonschema:"format=variable"` // Variable for address:port of each of its instances, separated by commas, in the order of the instances.
	Port      string `yaml:"port" jsonschema:"minLength=1"`   // Name of the port of that component.
}

// A Cluster defines how the instances of one component learn each other's
// addresses.
type Cluster struct {
	As   string `yaml:"as" jsonschema:"required,format=variable"` // Variable for address:port of all the component's instances, including its own, separated by commas.
	Port string `yaml:"port" jsonschema:"required,minLength=1"`   // Name of the port.
}

// Ready is the check that an instance must pass: exactly one of tcp, sip, http
// and command.
type Ready struct {
	TCP     string        `yaml:"tcp" jsonschema:"minLength=1"`                              // Name of a port that accepts a TCP connection.
	SIP     string        `yaml:"sip" jsonschema:"minLength=1"`                              // Name of a port that answers SIP OPTIONS over UDP.
	HTTP    *ReadyHTTP    `yaml:"http"`                                                      // HTTP GET that must return a status of 2xx or 3xx.
	Command Args          `yaml:"command"`                                                   // Command that must exit with status 0; it runs in the instance.
	Timeout time.Duration `yaml:"timeout" jsonschema:"format=positive-duration,default=30s"` // Time limit for an instance to become ready; four times as long on an emulated machine. One check may take a tenth of it, and at least 1s.
}

// DefaultReadyTimeout is the time limit for an instance to become ready.
const DefaultReadyTimeout = 30 * time.Second

// UnmarshalYAML decodes the check on top of its defaults.
func (r *Ready) UnmarshalYAML(n *yaml.Node) error {
	type plain Ready
	*r = Ready{Timeout: DefaultReadyTimeout}
	return n.Decode((*plain)(r))
}

// ReadyHTTP is the target of a GET request.
type ReadyHTTP struct {
	Port string `yaml:"port" jsonschema:"required,minLength=1"` // Name of the port.
	Path string `yaml:"path" jsonschema:"required,pattern=^/"`  // Path, such as /health.
}

// A Flavor is a CPU and memory size for an instance (NFV-VITAL, Table I).
type Flavor struct {
	Name        string           `yaml:"name" jsonschema:"required,format=name"`                                    // Name with a unique initial, which stands for the flavor in a sizing's name.
	VCPUs       float64          `yaml:"vcpus" jsonschema:"required,exclusiveMinimum=0,minimum=0.001,maximum=4096"` // CPUs, as a decimal: 0.1 is a tenth of one CPU.
	Memory      document.Size    `yaml:"memory" jsonschema:"required"`                                              // Memory, such as 256MiB.
	Pin         bool             `yaml:"pin" jsonschema:"default=false"`                                            // Pin each instance to its own CPUs, even if servers.pinning is off.
	Environment document.Strings `yaml:"environment"`                                                               // In place of the values that a component gives to the same names, for its instances of this flavor: threads that fit its CPUs, for example. ${NAME} is replaced by a variable that every instance gets.
	Price       float64          `yaml:"price" jsonschema:"exclusiveMinimum=0"`                                     // Price of one instance, in one currency and period for all flavors. Mode model with the objective price adds up the prices.
}

// vitrine converts the flavor to the type of the root package.
func (f Flavor) vitrine() vitrine.Flavor {
	return vitrine.Flavor{Name: f.Name, VCPUs: f.VCPUs, Memory: int64(f.Memory), Pin: f.Pin, Price: f.Price}
}

// Servers defines where and how instances run.
type Servers struct {
	Substrate     document.OneOrMany[string]          `yaml:"substrate" jsonschema_extras:"default=process"` // Substrate: the kind of place in which instances run.
	Fabric        document.OneOrMany[string]          `yaml:"fabric" jsonschema_extras:"default=auto"`       // Network that connects the instances.
	Pinning       document.OneOrMany[document.Switch] `yaml:"pinning" jsonschema_extras:"default=off"`       // On: each instance is pinned to its own CPUs. Off: it may run on all of the function's CPUs.
	CFSPeriod     document.OneOrMany[time.Duration]   `yaml:"cfs_period" jsonschema_extras:"default=20ms"`   // Period of the CPU quota, 1ms to 1s. An instance that has used up its quota stalls until the period ends.
	KeepAwake     document.OneOrMany[document.Switch] `yaml:"keep_awake" jsonschema_extras:"default=off"`    // On: idle CPUs of the host poll, as with idle=poll. Otherwise a function under low load uses more CPU time per call, because an idle (virtual) CPU must wake up.
	Impairment    document.OneOrMany[string]          `yaml:"impairment"`                                    // Name of one of impair.variants, which then holds instead of the links beside it; with several names, each is measured.
	CPUs          document.CPUs                       `yaml:"cpus"`                                          // CPUs reserved for the function; by default all except the generator's.
	GeneratorCPUs document.CPUs                       `yaml:"generator_cpus"`                                // CPUs of the load generator; by default the first CPU.

	Parts map[string]document.Node `yaml:",inline" jsonschema:"-"` // options of each back end, by its name
}

// DefaultSubstrate runs instances as processes on this host.
const DefaultSubstrate = "process"

// DefaultCFSPeriod is short because an instance that has used up its quota
// waits for the next period. With the kernel's default of 100 ms, a small
// instance would wait for most of it.
const DefaultCFSPeriod = 20 * time.Millisecond

// DefaultServers returns the options that apply where a file does not set them.
func DefaultServers() Servers {
	return Servers{
		Substrate: document.OneOrMany[string]{DefaultSubstrate},
		Fabric:    document.OneOrMany[string]{"auto"},
		Pinning:   document.OneOrMany[document.Switch]{false},
		CFSPeriod: document.OneOrMany[time.Duration]{DefaultCFSPeriod},
		KeepAwake: document.OneOrMany[document.Switch]{false},
	}
}

// An Install is a script that sets up the instances of a component (NFV-VITAL,
// section III).
type Install struct {
	Component string        `yaml:"component" jsonschema:"required"`                              // Component in whose instances the script runs.
	Script    string        `yaml:"script" jsonschema:"required,minLength=1"`                     // Executable script; a relative path starts from the file's folder.
	TimeLimit time.Duration `yaml:"time_limit" jsonschema:"format=positive-duration,default=60s"` // Time limit of the script; four times as long on an emulated machine.
}

// DefaultTimeLimit is the time limit of an install script.
const DefaultTimeLimit = time.Minute

// UnmarshalYAML decodes the script on top of its defaults.
func (i *Install) UnmarshalYAML(n *yaml.Node) error {
	type plain Install
	*i = Install{TimeLimit: DefaultTimeLimit}
	return n.Decode((*plain)(i))
}

// The testing modes (NFV-VITAL, section III.A).
const (
	Custom     = "custom"
	Exhaustive = "exhaustive"
	Directed   = "directed"
	Model      = "model"
)

// The scaling methods of a directed search.
const (
	ScaleUp     = "up"
	ScaleOut    = "out"
	ScaleHybrid = "hybrid"
)

// The objectives of mode model.
const (
	MostCapacity = "capacity"
	FewestVCPUs  = "vcpus"
	LowestPrice  = "price"
)

// A Mode defines which sizes to measure (NFV-VITAL, section III.A).
type Mode struct {
	Name       string   `yaml:"name" jsonschema:"required,enum=custom,enum=exhaustive,enum=directed,enum=model"` // custom: the given sizes. exhaustive: all sizes within the limit. directed: start from the smallest size and grow the bottleneck. model: the sizes with the largest expected gain, by a model of component costs.
	Sizes      []string `yaml:"sizes" jsonschema:"minItems=1"`                                                   // Mode custom: the sizes to measure, such as bn1s-sp2m-hs1l.
	Interleave bool     `yaml:"interleave" jsonschema:"default=false"`                                           // Mode custom: if true, the sizes are measured in turns, under all options: each has one fresh deployment in each turn. A host whose speed changes then changes it for all of them.
	Flavors    []string `yaml:"flavors" jsonschema:"minItems=1"`                                                 // Flavors allowed for scalable components; by default all. Scaling out needs exactly one.
	Scaling    string   `yaml:"scaling" jsonschema:"enum=up,enum=out,enum=hybrid,default=up"`                    // Mode directed: up to the next flavor, out by one more instance, or hybrid: the one of the two that brings more.
	ScaleOn    string   `yaml:"scale_on" jsonschema:"enum=cpu,enum=memory,enum=network,default=cpu"`             // Mode directed: the resource whose use makes a component the bottleneck.
	Objective  string   `yaml:"objective" jsonschema:"enum=capacity,enum=vcpus,enum=price,default=capacity"`     // Mode model: the highest capacity within the limit, or the fewest vCPUs or the lowest price that carry the rate in reach.
	Limit      Limit    `yaml:"limit"`                                                                           // Limit of the total resources of scalable components.
	Reach      float64  `yaml:"reach" jsonschema:"exclusiveMinimum=0"`                                           // Mode directed: stop when a size carries this rate. Mode model: the rate that a size must carry with the objectives vcpus and price.
}

// UnmarshalYAML decodes the mode on top of its defaults.
func (m *Mode) UnmarshalYAML(n *yaml.Node) error {
	type plain Mode
	*m = Mode{Scaling: ScaleUp, ScaleOn: vitrine.CPU, Objective: MostCapacity}
	return n.Decode((*plain)(m))
}

// A Limit is the limit of the total resources of scalable components; left out: no limit.
type Limit struct {
	VCPUs  float64       `yaml:"vcpus" jsonschema:"exclusiveMinimum=0"` // CPUs, as a decimal.
	Memory document.Size `yaml:"memory"`                                // Memory, such as 2GiB.
}

// LoadDeployment reads and checks the file at path. It checks the content only
// if the file matches its schema. A mistake in the file is a *vitrine.BadInput,
// or several joined.
func LoadDeployment(path string, known Known) (*Deployment, error) {
	file, err := document.Read(path, anyKind)
	if err != nil {
		return nil, err
	}
	return readDeployment(file, known)
}

// ParseDeployment is like LoadDeployment, but takes the bytes from the caller.
// Relative paths in them are resolved against the folder of path.
func ParseDeployment(path string, raw []byte, known Known) (*Deployment, error) {
	file, err := document.Parse(path, raw, anyKind)
	if err != nil {
		return nil, err
	}
	return readDeployment(file, known)
}

func readDeployment(file document.File, known Known) (*Deployment, error) {
	schema, err := deploymentSchema(known)
	if err != nil {
		return nil, err
	}
	compiled, err := document.Compile(schema, Formats()...)
	if err != nil {
		return nil, err
	}
	return decodeDeployment(file, compiled)
}

func decodeDeployment(file document.File, schema *document.Schema) (*Deployment, error) {
	root := file.Root()
	d := &Deployment{File: file, Servers: DefaultServers()}
	if err := schema.Decode(root, d); err != nil {
		return nil, err
	}
	for name := range d.Servers.Parts {
		d.Servers.Parts[name] = root.Sub("servers", name)
	}
	if err := checkDeployment(root, d); err != nil {
		return nil, err
	}
	for i := range d.Components {
		d.resolveProgram(d.Components[i].Command)
		if ready := d.Components[i].Ready; ready != nil {
			d.resolveProgram(ready.Command)
		}
	}
	for i := range d.Install {
		d.Install[i].Script = d.Resolve(d.Install[i].Script)
	}
	return d, nil
}
