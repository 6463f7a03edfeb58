// Command wiretypes prints, as compact JSON, how Go encodes and decodes every built-in Kubernetes type: field order,
// Go type, and whether a zero value is left out. OpenAPI does not say these things; reflection over the API modules does.
//
// Usage: go run . | gzip -9n > ../../src/kubeloop/schema/wiretypes.json.gz
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type document struct {
	// Types: every Go type met: [go name, category, argument...].
	Types [][]any `json:"types"`
	// Kinds: "group/version/Kind" to the index of its type.
	Kinds map[string]int `json:"kinds"`
}

type walker struct {
	index map[reflect.Type]int
	out   [][]any
}

// special: types with a decoder of their own.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "raw",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "raw",
}

func (w *walker) walk(t reflect.Type) int {
	if at, ok := w.index[t]; ok {
		return at
	}
	at := len(w.out)
	w.index[t] = at
	w.out = append(w.out, nil)
	name := t.String()
	if category, ok := special[t.PkgPath()+"."+t.Name()]; ok {
		w.out[at] = []any{name, category}
		return at
	}
	switch t.Kind() {
	case reflect.Pointer:
		w.out[at] = []any{name, "pointer", w.walk(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			w.out[at] = []any{name, "bytes"}
		} else {
			w.out[at] = []any{name, "slice", w.walk(t.Elem())}
		}
	case reflect.Map:
		w.out[at] = []any{name, "map", w.walk(t.Elem())}
	case reflect.Struct:
		fields := [][]any{}
		w.fields(t, "", &fields)
		w.out[at] = []any{name, "struct", fields}
	case reflect.Interface:
		w.out[at] = []any{name, "raw"}
	default:
		w.out[at] = []any{name, t.Kind().String()}
	}
	return at
}

func (w *walker) fields(t reflect.Type, prefix string, out *[][]any) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || (!field.IsExported() && !field.Anonymous) {
			continue
		}
		if field.Anonymous && tag == "" {
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			w.fields(embedded, prefix+field.Name+".", out)
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
		*out = append(*out, []any{tag, w.walk(field.Type), omit, prefix})
	}
}

func main() {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(all); err != nil {
			panic(err)
		}
	}
	w := &walker{index: map[reflect.Type]int{}}
	kinds := map[string]int{}
	names := []string{}
	types := map[string]reflect.Type{}
	for gvk, t := range all.AllKnownTypes() {
		if gvk.Version == "__internal" || (gvk.Kind == "WatchEvent" || gvk.Kind == "InternalEvent") {
			continue
		}
		name := gvk.Group + "/" + gvk.Version + "/" + gvk.Kind
		names = append(names, name)
		types[name] = t
	}
	sort.Strings(names)
	for _, name := range names {
		kinds[name] = w.walk(types[name])
	}
	if err := json.NewEncoder(os.Stdout).Encode(document{Types: w.out, Kinds: kinds}); err != nil {
		panic(err)
	}
}
