package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// applying is server-side apply through the typed client: ownership, conflicts, force.
func applying(w *world) {
	maps := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	wanted := func(data map[string]string) *corev1.ConfigMapApplyConfiguration {
		return corev1.ConfigMap("applied", w.namespace).WithData(data)
	}
	mine, err := maps.Apply(w.ctx, wanted(map[string]string{"a": "1", "b": "1"}), metav1.ApplyOptions{FieldManager: "mine"})
	w.must(err)
	w.tell("create: %s, %s", inOrder(mine.Data), managers(mine))
	_, err = maps.Apply(w.ctx, wanted(map[string]string{"a": "2", "c": "2"}), metav1.ApplyOptions{FieldManager: "theirs"})
	w.refused("a conflict", err)
	theirs, err := maps.Apply(w.ctx, wanted(map[string]string{"a": "2", "c": "2"}), metav1.ApplyOptions{FieldManager: "theirs", Force: true})
	w.must(err)
	w.tell("forced: %s, %s", inOrder(theirs.Data), managers(theirs))
	less, err := maps.Apply(w.ctx, wanted(map[string]string{"c": "2"}), metav1.ApplyOptions{FieldManager: "theirs"})
	w.must(err)
	w.tell("less than before: %s", inOrder(less.Data))
	extracted, err := corev1.ExtractConfigMap(less, "theirs")
	w.must(err)
	w.tell("what is theirs: %s", inOrder(extracted.Data))
	_, err = maps.Apply(w.ctx, wanted(nil), metav1.ApplyOptions{})
	w.refused("without a manager", err)
	w.must(maps.Delete(w.ctx, "applied", metav1.DeleteOptions{}))

	client := dynamic.NewForConfigOrDie(w.config).Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	container := func(image string) object {
		return object{"name": "web", "image": image}
	}
	deployment := func(containers ...any) *unstructured.Unstructured {
		labels := object{"app": "web"}
		return &unstructured.Unstructured{Object: object{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "applied"},
			"spec": object{
				"replicas": int64(0), "selector": object{"matchLabels": labels},
				"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}},
			},
		}}
	}
	deployments := client.Namespace(w.namespace)
	made, err := deployments.Apply(w.ctx, "applied", deployment(container("one")), metav1.ApplyOptions{FieldManager: "mine"})
	w.must(err)
	w.tell("a Deployment: %s", managers(made))
	_, err = deployments.Apply(w.ctx, "applied", deployment(container("two")), metav1.ApplyOptions{FieldManager: "theirs"})
	w.refused("a conflict in a list", err)
	w.must(deployments.Delete(w.ctx, "applied", metav1.DeleteOptions{}))
}
