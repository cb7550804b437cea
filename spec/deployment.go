package spec

import (
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine"
	"vitrine/document"
)

// A Deployment says what a network function is made of, what it may be given
// and which sizes of it to measure (NFV-VITAL, section III, "User Input").
type Deployment struct {
	document.File `yaml:"-"`

	VNFName    string           `yaml:"vnf_name" jsonschema:"required,format=vnf-name"`       // Name of the function, as it stands in reports.
	Stateful   bool             `yaml:"stateful" jsonschema:"default=false"`                  // Deploy afresh after an overloaded trial; otherwise the function is only let settle.
	Components []Component      `yaml:"components" jsonschema:"required,minItems=1"`          // What the function is made of; scalable ones appear in a sizing's name in this order.
	Flavors    []Flavor         `yaml:"flavors" jsonschema:"required,minItems=1,maxItems=26"` // What an instance may be given.
	Servers    Servers          `yaml:"servers"`                                              // Where instances run and how; an option given several values is one more dimension of the plan.
	Install    []Install        `yaml:"install"`                                              // Scripts that are run in each instance before its command starts.
	Counts     map[string]Count `yaml:"instances"`                                            // By component: how many instances it has (not scalable: 1 unless said) or may have (scalable: min and max).
	Mode       Mode             `yaml:"mode" jsonschema:"required"`                           // Which sizes are measured.
}

// A Component is one kind of instance that the function is made of.
type Component struct {
	Name         string           `yaml:"name" jsonschema:"required,format=name"`        // Unique; an instance is called after it: sprout-1.
	Short        string           `yaml:"short" jsonschema:"required,format=short-name"` // Unique; stands for the component in a sizing's name: sp in bn1s-sp2m-hs1l.
	Scalable     bool             `yaml:"scalable" jsonschema:"default=true"`            // False: fixed flavor and count, outside names and limits.
	Flavor       string           `yaml:"flavor"`                                        // Of a component that is not scalable: the flavor it always has.
	Image        string           `yaml:"image" jsonschema:"minLength=1"`                // Docker image, by reference; without it, substrates that need one build it from the static program command[0].
	Command      Args             `yaml:"command"`                                       // Program and arguments, without a shell; ${NAME} stands for a variable of the instance's environment. The program vitrine is this very binary; one with a slash starts from the file's folder.
	Environment  document.Strings `yaml:"environment"`                                   // Variables of each of its instances; ${NAME} stands for one that the instance is given anyway: ADDRESS, VITRINE_DIR, VITRINE_INDEX, VITRINE_INSTANCE, VITRINE_SIZING, VITRINE_SPEC, and the addresses of others.
	Ports        map[string]int   `yaml:"ports"`                                         // Port numbers by a name that the rest of the file uses.
	Entry        string           `yaml:"entry"`                                         // The load goes to this port of each of its instances; exactly one component has it.
	Dependencies []Dependency     `yaml:"dependencies"`                                  // Components that are started before it, and how it learns where they are.
	Cluster      *Cluster         `yaml:"cluster"`                                       // How its instances learn of each other; without it they do not.
	Ready        *Ready           `yaml:"ready"`                                         // When an instance counts as ready; without it, as soon as its command runs.
}

// UnmarshalYAML decodes the component on top of its defaults.
func (c *Component) UnmarshalYAML(n *yaml.Node) error {
	type plain Component
	*c = Component{Scalable: true}
	return n.Decode((*plain)(c))
}

// A Dependency is a component that is started before, and how it is found.
type Dependency struct {
	Component string `yaml:"component" jsonschema:"required"` // The component's name.
	As        string `yaml:"as" jsonschema:"format=variable"` // Variable that holds address:port of each of its instances, with commas between, in the order of the instances.
	Port      string `yaml:"port"`                            // The port's name at that component.
}

// A Cluster says how the instances of one component learn of each other.
type Cluster struct {
	As   string `yaml:"as" jsonschema:"required,format=variable"` // Variable that holds address:port of all the component's instances, with commas between, its own among them.
	Port string `yaml:"port" jsonschema:"required"`               // The port's name.
}

// Ready is the check that an instance must pass: exactly one of TCP, SIP, HTTP
// and Command.
type Ready struct {
	TCP     string        `yaml:"tcp"`                                                       // Name of a port that accepts a TCP connection.
	SIP     string        `yaml:"sip"`                                                       // Name of a port that answers SIP OPTIONS over UDP.
	HTTP    *ReadyHTTP    `yaml:"http"`                                                      // A GET that is answered with a status of 2xx or 3xx.
	Command Args          `yaml:"command"`                                                   // A command that ends with status 0, run in the instance.
	Timeout time.Duration `yaml:"timeout" jsonschema:"format=positive-duration,default=30s"` // How long it may take to get ready.
}

// DefaultReadyTimeout is the time limit for an instance to become ready.
const DefaultReadyTimeout = 30 * time.Second

// UnmarshalYAML decodes the check on top of its defaults.
func (r *Ready) UnmarshalYAML(n *yaml.Node) error {
	type plain Ready
	*r = Ready{Timeout: DefaultReadyTimeout}
	return n.Decode((*plain)(r))
}

// ReadyHTTP is where to send a GET.
type ReadyHTTP struct {
	Port string `yaml:"port" jsonschema:"required"`            // The port's name.
	Path string `yaml:"path" jsonschema:"required,pattern=^/"` // The path: /health.
}

// A Flavor is what an instance may be given (NFV-VITAL, Table I).
type Flavor struct {
	Name   string        `yaml:"name" jsonschema:"required,format=name"`                                    // Its initial is unique; it stands for the flavor in a sizing's name.
	VCPUs  float64       `yaml:"vcpus" jsonschema:"required,exclusiveMinimum=0,minimum=0.001,maximum=4096"` // CPUs, as a decimal: 0.1 is a tenth of one CPU.
	Memory document.Size `yaml:"memory" jsonschema:"required"`                                              // Memory, such as 256MiB.
	Pin    bool          `yaml:"pin" jsonschema:"default=false"`                                            // Give each instance CPUs of its own, whatever servers.pinning says.
	Price  float64       `yaml:"price" jsonschema:"exclusiveMinimum=0"`                                     // Of one instance, in any one currency and span of time; what mode model with the objective price adds up.
}

// vitrine converts the flavor to the type of the root package.
func (f Flavor) vitrine() vitrine.Flavor {
	return vitrine.Flavor{Name: f.Name, VCPUs: f.VCPUs, Memory: int64(f.Memory), Pin: f.Pin, Price: f.Price}
}

// Servers says where instances run, and how.
type Servers struct {
	Substrate     document.OneOrMany[string]          `yaml:"substrate" jsonschema_extras:"default=process"` // What instances run as.
	Fabric        document.OneOrMany[string]          `yaml:"fabric" jsonschema_extras:"default=auto"`       // How they are wired to each other.
	Pinning       document.OneOrMany[document.Switch] `yaml:"pinning" jsonschema_extras:"default=off"`       // On: each instance is bound to CPUs of its own; off: it floats over all of the function's CPUs.
	CFSPeriod     document.OneOrMany[time.Duration]   `yaml:"cfs_period" jsonschema_extras:"default=20ms"`   // Period of the CPU quota, 1ms to 1s; an instance that has spent its quota stalls to the end of it.
	KeepAwake     document.OneOrMany[document.Switch] `yaml:"keep_awake" jsonschema_extras:"default=off"`    // On: the function's CPUs never go idle, as with idle=poll: waking an idle (virtual) CPU costs a function that has little to do more per call.
	CPUs          document.CPUs                       `yaml:"cpus"`                                          // CPUs reserved for the function; all but the generator's unless said.
	GeneratorCPUs document.CPUs                       `yaml:"generator_cpus"`                                // CPUs of the load generator; the first CPU unless said.

	Parts map[string]document.Node `yaml:",inline" jsonschema:"-"` // options of each back end, by its name
}

// DefaultSubstrate runs instances as processes on this host.
const DefaultSubstrate = "process"

// DefaultCFSPeriod is short because an instance that has used up its quota
// waits for the next period. With the kernel's default of 100 ms, a small
// instance would wait for most of it.
const DefaultCFSPeriod = 20 * time.Millisecond

func defaultServers() Servers {
	return Servers{
		Substrate: document.OneOrMany[string]{DefaultSubstrate},
		Fabric:    document.OneOrMany[string]{"auto"},
		Pinning:   document.OneOrMany[document.Switch]{false},
		CFSPeriod: document.OneOrMany[time.Duration]{DefaultCFSPeriod},
		KeepAwake: document.OneOrMany[document.Switch]{false},
	}
}

// An Install is a script that bootstraps a component (NFV-VITAL, section III).
type Install struct {
	Component string        `yaml:"component" jsonschema:"required"`                              // In each instance of this component,
	Script    string        `yaml:"script" jsonschema:"required,minLength=1"`                     // this executable is run, a path from the file's folder,
	TimeLimit time.Duration `yaml:"time_limit" jsonschema:"format=positive-duration,default=60s"` // for at most this long.
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

// A Mode says which sizes are measured (NFV-VITAL, section III.A).
type Mode struct {
	Name      string   `yaml:"name" jsonschema:"required,enum=custom,enum=exhaustive,enum=directed,enum=model"` // custom: the sizes given; exhaustive: all within the limit; directed: from the smallest, the bottleneck grows; model: where most is to be gained, by a model of what components cost.
	Sizes     []string `yaml:"sizes" jsonschema:"minItems=1"`                                                   // Of mode custom: what to measure, such as bn1s-sp2m-hs1l.
	Flavors   []string `yaml:"flavors" jsonschema:"minItems=1"`                                                 // The flavors that scalable components may have; all unless said. Scaling out needs exactly one.
	Scaling   string   `yaml:"scaling" jsonschema:"enum=up,enum=out,enum=hybrid,default=up"`                    // Of mode directed: up to the next flavor, out by one more instance, or hybrid: whichever of the two brings more.
	ScaleOn   string   `yaml:"scale_on" jsonschema:"enum=cpu,enum=memory,enum=network,default=cpu"`             // Of mode directed: the use that makes a component the bottleneck.
	Objective string   `yaml:"objective" jsonschema:"enum=capacity,enum=vcpus,enum=price,default=capacity"`     // Of mode model: the most capacity within the limit, or the fewest vCPUs or the lowest price that carry what is to be reached.
	Limit     Limit    `yaml:"limit"`                                                                           // What scalable components may be given together.
	Reach     float64  `yaml:"reach" jsonschema:"exclusiveMinimum=0"`                                           // Of mode directed: stop once this rate is carried. Of mode model: the rate that the objectives vcpus and price are to carry.
}

// UnmarshalYAML decodes the mode on top of its defaults.
func (m *Mode) UnmarshalYAML(n *yaml.Node) error {
	type plain Mode
	*m = Mode{Scaling: ScaleUp, ScaleOn: vitrine.CPU, Objective: MostCapacity}
	return n.Decode((*plain)(m))
}

// A Limit bounds what scalable components are given together; 0 does not bind.
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
	compiled, err := document.Compile(schema, formats()...)
	if err != nil {
		return nil, err
	}
	return decodeDeployment(file, compiled)
}

func decodeDeployment(file document.File, schema *document.Schema) (*Deployment, error) {
	root := file.Root()
	d := &Deployment{File: file, Servers: defaultServers()}
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
		d.program(d.Components[i].Command)
		if ready := d.Components[i].Ready; ready != nil {
			d.program(ready.Command)
		}
	}
	for i := range d.Install {
		d.Install[i].Script = d.Resolve(d.Install[i].Script)
	}
	return d, nil
}
