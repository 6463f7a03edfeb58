// Command internaltypes prints, as compact JSON, the internal types that kube-apiserver validates: what encoding/json makes of
// them is what its messages quote. Each field is paired with its name on the wire; what has no pair is told on standard error.
//
// Usage: go run . | gzip -9n > ../../src/kubeloop/schema/internaltypes.json.gz
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/discovery"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/node"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/apis/storage"
)

type document struct {
	// Types: [category, argument...]; a struct's fields are [printed name, name on the wire, type, omit]. On the wire
	// "." is the struct itself, "^name" a field beside it, and an empty name stands nowhere.
	Types [][]any `json:"types"`
	// Kinds: "group/Kind" to the index of its type.
	Kinds map[string]int `json:"kinds"`
	// Names: Go's name of each struct, without the version of its package.
	Names map[string]int `json:"names"`
}

type pair struct{ internal, wire reflect.Type }

type walker struct {
	index map[pair]int
	out   [][]any
	names map[string]int
}

// special: types with an encoder of their own.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":   "raw",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    "raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "int",
}

func (w *walker) walk(t, wire reflect.Type, where string) int {
	if t.Kind() != reflect.Pointer {
		wire = plain(wire)
	}
	key := pair{t, wire}
	if at, ok := w.index[key]; ok {
		return at
	}
	at := len(w.out)
	w.index[key] = at
	w.out = append(w.out, nil)
	if category, ok := special[t.PkgPath()+"."+t.Name()]; ok {
		w.out[at] = []any{category}
		return at
	}
	switch t.Kind() {
	case reflect.Pointer:
		w.out[at] = []any{"pointer", w.walk(t.Elem(), plain(wire), where)}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			w.out[at] = []any{"bytes"}
		} else {
			w.out[at] = []any{"slice", w.walk(t.Elem(), element(wire), where+"[]")}
		}
	case reflect.Map:
		w.out[at] = []any{"map", w.walk(t.Elem(), element(wire), where+"{}")}
	case reflect.Struct:
		known := map[string]wired{}
		if wire != nil && wire.Kind() == reflect.Struct {
			wireFields(wire, known)
		}
		name := t.String()
		if strings.Contains(t.PkgPath(), "/pkg/apis/") {
			w.names[name] = at
		}
		fields := [][]any{}
		w.fields(t, wire, known, where, &fields)
		w.out[at] = []any{"struct", fields}
	case reflect.Interface:
		w.out[at] = []any{"raw"}
	case reflect.String, reflect.Bool:
		w.out[at] = []any{t.Kind().String()}
	case reflect.Float32, reflect.Float64:
		w.out[at] = []any{"float"}
	default:
		w.out[at] = []any{"int"}
	}
	return at
}

type wired struct {
	name string
	kind reflect.Type
}

func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func element(t reflect.Type) reflect.Type {
	if t = plain(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		return t.Elem()
	}
	return nil
}

// wireFields finds the fields of a type that clients see by their Go names in lower case.
func wireFields(t reflect.Type, out map[string]wired) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" {
			wireFields(plain(field.Type), out)
			continue
		}
		out[strings.ToLower(field.Name)] = wired{tag, field.Type}
		if _, taken := out[strings.ToLower(tag)]; !taken {
			out[strings.ToLower(tag)] = wired{tag, field.Type}
		}
	}
}

// pairs of fields that the conversion moves: a pod's wire form keeps these beside its security context.
var moved = map[string]string{
	"core.PodSecurityContext.HostNetwork":           "^hostNetwork",
	"core.PodSecurityContext.HostPID":               "^hostPID",
	"core.PodSecurityContext.HostIPC":               "^hostIPC",
	"core.PodSecurityContext.ShareProcessNamespace": "^shareProcessNamespace",
	"core.PodSecurityContext.HostUsers":             "^hostUsers",
}

func (w *walker) fields(t, wire reflect.Type, known map[string]wired, where string, out *[][]any) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || (!field.IsExported() && !field.Anonymous) {
			continue
		}
		if field.Anonymous && tag == "" {
			embedded := plain(field.Type)
			if embedded.Name() == "ObjectMeta" {
				inner := map[string]wired{}
				wireFields(embedded, inner)
				before := len(*out)
				w.fields(embedded, nil, inner, where, out)
				for _, one := range (*out)[before:] {
					one[1] = "metadata." + one[1].(string)
				}
				continue
			}
			if embedded.Name() == "TypeMeta" {
				continue // never set in internal objects
			}
			w.walk(embedded, wire, where) // some messages are about it alone
			w.fields(embedded, wire, known, where, out)
			continue
		}
		if tag == "" {
			tag = field.Name
		}
		omit := ""
		for _, option := range strings.Split(options, ",") {
			switch option {
			case "omitempty":
				omit += "e"
			case "omitzero":
				omit += "z"
			}
		}
		found, ok := known[strings.ToLower(field.Name)]
		switch name := moved[t.String()+"."+field.Name]; {
		case name != "":
			found.name = name
		case !ok && field.Type.Kind() == reflect.Struct:
			found = wired{".", wire} // its fields stand beside it on the wire
		case !ok:
			fmt.Fprintf(os.Stderr, "%s: %s.%s has no pair\n", where, t, field.Name)
		}
		*out = append(*out, []any{tag, found.name, w.walk(field.Type, found.kind, where+"."+field.Name), omit})
	}
}

func main() {
	internal := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, batch.AddToScheme, autoscaling.AddToScheme, networking.AddToScheme, policy.AddToScheme,
		rbac.AddToScheme, resource.AddToScheme, scheduling.AddToScheme, storage.AddToScheme, certificates.AddToScheme,
		coordination.AddToScheme, discovery.AddToScheme, flowcontrol.AddToScheme, node.AddToScheme, admissionregistration.AddToScheme,
	} {
		if err := add(internal); err != nil {
			panic(err)
		}
	}
	w := &walker{index: map[pair]int{}, names: map[string]int{}}
	kinds := map[string]int{}
	for _, gvk := range sorted(internal) {
		if wire := newest(gvk.GroupKind()); wire != nil && !strings.HasSuffix(gvk.Kind, "List") && !strings.HasSuffix(gvk.Kind, "Options") {
			kinds[gvk.Group+"/"+gvk.Kind] = w.walk(internal.AllKnownTypes()[gvk], wire, gvk.Kind)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(document{Types: w.out, Kinds: kinds, Names: w.names}); err != nil {
		panic(err)
	}
}

func sorted(all *runtime.Scheme) []schema.GroupVersionKind {
	found := []schema.GroupVersionKind{}
	for gvk := range all.AllKnownTypes() {
		found = append(found, gvk)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

// newest finds the type that the newest version of a group has for a kind.
func newest(kind schema.GroupKind) reflect.Type {
	var best reflect.Type
	name := ""
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.GroupKind() == kind && (name == "" || version.CompareKubeAwareVersionStrings(gvk.Version, name) > 0) {
			best, name = t, gvk.Version
		}
	}
	return best
}
