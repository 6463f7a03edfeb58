package main

import (
	"context"
	"strings"
	"time"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
)

const openAPIProtobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

type waitContext = context.Context

type object = map[string]any

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// dynamically defines a kind, waits for it, and uses it without types.
func dynamically(w *world) {
	client := dynamic.NewForConfigOrDie(w.config)
	group := w.namespace + ".example.com"
	definition := &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "gadgets." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList", "shortNames": []any{"gg"}},
			"versions": []any{object{
				"name": "v1", "served": true, "storage": true,
				"subresources": object{"status": object{}},
				"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{
					"spec": object{"type": "object", "properties": object{
						"size": object{"type": "integer", "default": int64(3), "maximum": int64(9)}, "colour": object{"type": "string"},
					}},
					"status": object{"type": "object", "properties": object{"seen": object{"type": "integer"}}},
				}}},
			}},
		},
	}}
	_, err := client.Resource(definitions()).Create(w.ctx, definition, metav1.CreateOptions{})
	w.must(err)
	w.must(wait.PollUntilContextTimeout(w.ctx, 20*time.Millisecond, 20*time.Second, true, func(ctx waitContext) (bool, error) {
		found, err := client.Resource(definitions()).Get(ctx, "gadgets."+group, metav1.GetOptions{})
		return err == nil && established(found), err
	}))
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	gadgets := client.Resource(resource).Namespace(w.namespace)
	// A real server serves a new kind a moment after it has said so.
	var list *unstructured.UnstructuredList
	w.must(wait.PollUntilContextTimeout(w.ctx, 20*time.Millisecond, 20*time.Second, true, func(ctx waitContext) (bool, error) {
		list, err = gadgets.List(ctx, metav1.ListOptions{})
		return err == nil, nil
	}))
	w.tell("empty list: %s of %s, %d items", list.GetKind(), list.GetAPIVersion(), len(list.Items))
	stream, err := gadgets.Watch(w.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	w.must(err)
	gadget := func(name string, spec object) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: object{"apiVersion": group + "/v1", "kind": "Gadget", "metadata": object{"name": name}, "spec": spec}}
	}
	made, err := gadgets.Create(w.ctx, gadget("g", object{"colour": "red", "unknown": true}), metav1.CreateOptions{})
	w.must(err)
	w.tell("create: %v, generation %d", made.Object["spec"], made.GetGeneration())
	_, err = gadgets.Create(w.ctx, gadget("h", object{"size": int64(10)}), metav1.CreateOptions{})
	w.refused("create what is not valid", err)
	_, err = gadgets.Create(w.ctx, gadget("h", object{"unknown": true}), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.refused("create with an unknown field", err)
	w.must(unstructured.SetNestedField(made.Object, int64(5), "status", "seen"))
	seen, err := gadgets.UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
	w.tell("status: %v, generation %d", seen.Object["status"], seen.GetGeneration())
	patched, err := gadgets.Patch(w.ctx, "g", types.MergePatchType, []byte(`{"spec":{"colour":"blue"}}`), metav1.PatchOptions{})
	w.must(err)
	w.tell("patch: %v, generation %d", patched.Object["spec"], patched.GetGeneration())
	_, err = gadgets.Patch(w.ctx, "g", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
	w.refused("a strategic patch", err)
	w.must(gadgets.Delete(w.ctx, "g", metav1.DeleteOptions{}))
	for range 4 {
		one := <-stream.ResultChan()
		w.tell("%s %v", one.Type, one.Object.(*unstructured.Unstructured).Object["spec"])
	}
	stream.Stop()
	deployed, err := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	w.tell("a built-in kind: %s, %d items", deployed.GetKind(), len(deployed.Items))
	w.must(client.Resource(definitions()).Delete(w.ctx, "gadgets."+group, metav1.DeleteOptions{}))
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, one := range conditions {
		if condition := one.(object); condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// metadataOnly reads metadata of whatever kind, by list and by informer.
func metadataOnly(w *world) {
	client := metadata.NewForConfigOrDie(w.config)
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	typed := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	_, err := typed.Create(w.ctx, configMap("m", map[string]string{"much": strings.Repeat("x", 1000)}), metav1.CreateOptions{})
	w.must(err)
	one, err := client.Resource(maps).Namespace(w.namespace).Get(w.ctx, "m", metav1.GetOptions{})
	w.must(err)
	w.tell("get: %s of %s, labels %s", one.Kind, one.APIVersion, inOrder(one.Labels))
	list, err := client.Resource(maps).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: "by=foreign"})
	w.must(err)
	w.tell("list: %s, %d items", list.Kind, len(list.Items))
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, w.namespace, func(options *metav1.ListOptions) { options.LabelSelector = "by=foreign" })
	informer := factory.ForResource(maps)
	stop := make(chan struct{})
	informer.Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	w.tell("informer: %d objects", len(informer.Informer().GetStore().List()))
	close(stop)
	factory.Shutdown()
	w.must(typed.Delete(w.ctx, "m", metav1.DeleteOptions{}))
}

// discovering asks what there is, in all the forms that programs ask for.
func discovering(w *world) {
	client := kubernetes.NewForConfigOrDie(w.config).Discovery()
	version, err := client.ServerVersion()
	w.must(err)
	w.tell("version: %s.%s", version.Major, version.Minor)
	groups, resources, err := client.ServerGroupsAndResources()
	w.must(err)
	count := 0
	for _, one := range resources {
		if one.GroupVersion == "apps/v1" || one.GroupVersion == "v1" {
			count += len(one.APIResources)
		}
	}
	w.tell("has groups %t, resources of v1 and apps/v1: %d", len(groups) > 10, count)
	preferred, err := client.ServerPreferredNamespacedResources()
	w.must(err)
	for _, one := range preferred {
		if one.GroupVersion == "autoscaling/v2" {
			w.tell("preferred: %s", one.APIResources[0].Name)
		}
	}
}

// documented reads the OpenAPI documents in the forms that Go programs ask for.
func documented(w *world) {
	client := kubernetes.NewForConfigOrDie(w.config).Discovery()
	document, err := client.OpenAPISchema()
	w.must(err)
	fields := 0
	for _, one := range document.GetDefinitions().GetAdditionalProperties() {
		if one.GetName() == "io.k8s.api.apps.v1.DeploymentSpec" {
			fields = len(one.GetValue().GetProperties().GetAdditionalProperties())
		}
	}
	w.tell("OpenAPI 2: fields of a DeploymentSpec: %d", fields)
	paths, err := client.OpenAPIV3().Paths()
	w.must(err)
	apps, err := paths["apis/apps/v1"].Schema("application/json")
	w.must(err)
	w.tell("OpenAPI 3: has apps/v1 %t", strings.Contains(string(apps), "io.k8s.api.apps.v1.DeploymentSpec"))
	apps, err = paths["apis/apps/v1"].Schema(openAPIProtobuf)
	w.must(err)
	var told openapi_v3.Document
	w.must(proto.Unmarshal(apps, &told))
	for _, one := range told.GetComponents().GetSchemas().GetAdditionalProperties() {
		if one.GetName() == "io.k8s.api.apps.v1.DeploymentSpec" {
			properties := one.GetValue().GetSchema().GetProperties().GetAdditionalProperties()
			w.tell("OpenAPI 3 in protobuf: %d paths, fields of a DeploymentSpec: %d", len(told.GetPaths().GetPath()), len(properties))
		}
	}
}
