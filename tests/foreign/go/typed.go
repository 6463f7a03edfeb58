package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"by": "foreign"}}, Data: data}
}

// typed is the life of one ConfigMap through the typed client.
func typed(w *world) {
	maps := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	made, err := maps.Create(w.ctx, configMap("a", map[string]string{"k": "v"}), metav1.CreateOptions{})
	w.must(err)
	w.tell("create: %s %s, has uid %t, has version %t", made.Name, inOrder(made.Data), made.UID != "", made.ResourceVersion != "")
	_, err = maps.Create(w.ctx, configMap("a", nil), metav1.CreateOptions{})
	w.refused("create again", err)
	_, err = maps.Create(w.ctx, configMap("Not/A/Name", nil), metav1.CreateOptions{})
	w.refused("create under a bad name", err)
	generated := configMap("", nil)
	generated.GenerateName = "generated-"
	named, err := maps.Create(w.ctx, generated, metav1.CreateOptions{})
	w.must(err)
	w.tell("generate a name: %d characters, begins with generated- %t", len(named.Name), strings.HasPrefix(named.Name, "generated-"))
	w.must(maps.Delete(w.ctx, named.Name, metav1.DeleteOptions{}))

	old := made.DeepCopy()
	made.Data["k"], made.BinaryData = "w", map[string][]byte{"raw": {0, 1, 254, 255}}
	changed, err := maps.Update(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
	w.tell("update: %s, binary %v, other version %t", inOrder(changed.Data), changed.BinaryData["raw"], changed.ResourceVersion != old.ResourceVersion)
	_, err = maps.Update(w.ctx, old, metav1.UpdateOptions{})
	w.refused("update an old version", err)
	same, err := maps.Update(w.ctx, changed, metav1.UpdateOptions{})
	w.must(err)
	w.tell("update nothing: same version %t", same.ResourceVersion == changed.ResourceVersion)
	dry, err := maps.Update(w.ctx, configMap("a", map[string]string{"dry": "run"}), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	w.must(err)
	w.tell("dry run: %s", inOrder(dry.Data))
	got, err := maps.Get(w.ctx, "a", metav1.GetOptions{})
	w.must(err)
	w.tell("get: %s, labels %s, version of the update %t", inOrder(got.Data), inOrder(got.Labels), got.ResourceVersion == changed.ResourceVersion)

	for _, one := range []struct {
		kind types.PatchType
		body string
	}{
		{types.MergePatchType, `{"data":{"merged":"yes","k":null}}`},
		{types.StrategicMergePatchType, `{"metadata":{"labels":{"more":"labels"}},"data":{"strategic":"yes"}}`},
		{types.JSONPatchType, `[{"op":"test","path":"/data/merged","value":"yes"},{"op":"move","from":"/data/merged","path":"/data/moved"}]`},
	} {
		patched, err := maps.Patch(w.ctx, "a", one.kind, []byte(one.body), metav1.PatchOptions{})
		w.must(err)
		w.tell("%s: %s, labels %s", one.kind, inOrder(patched.Data), inOrder(patched.Labels))
	}
	_, err = maps.Patch(w.ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/moved","value":"no"}]`), metav1.PatchOptions{})
	w.refused("a test that fails", err)

	_, err = maps.Get(w.ctx, "b", metav1.GetOptions{})
	w.refused("get what is not there", err)
	wrong := types.UID("not-its-uid")
	err = maps.Delete(w.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	w.refused("delete another one", fmt.Errorf("%s", strings.ReplaceAll(err.Error(), string(got.UID), "UID")))
	w.must(maps.Delete(w.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &got.UID}}))
	w.refused("delete again", maps.Delete(w.ctx, "a", metav1.DeleteOptions{}))
}

func managers(obj metav1.Object) string {
	var parts []string
	for _, one := range obj.GetManagedFields() {
		parts = append(parts, fmt.Sprintf("%s %s %s", one.Manager, one.Operation, one.FieldsV1.Raw))
	}
	return strings.Join(parts, "; ")
}
