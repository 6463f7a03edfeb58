package controller

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	booksv1 "kubeloop.invalid/guestbook/api/v1"
)

const patience = 60 * time.Second

func waitForWebhooks(mgr ctrl.Manager) {
	err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return mgr.GetWebhookServer().StartedChecker()(nil) == nil, nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "books-"}}
	must(t, k8sClient.Create(t.Context(), made))
	return made.Name
}

func book(name, namespace, title string) *booksv1.Guestbook {
	return &booksv1.Guestbook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: booksv1.GuestbookSpec{Title: title}}
}

func TestPagesAreMadeAndMadeAgain(t *testing.T) {
	made := book("guests", namespace(t), "Our guests")
	made.Spec.Pages = 2
	must(t, k8sClient.Create(t.Context(), made))
	eventually(t, "the book is ready", func() bool {
		err := k8sClient.Get(t.Context(), client.ObjectKeyFromObject(made), made)
		return err == nil && meta.IsStatusConditionTrue(made.Status.Conditions, "Ready")
	})
	page := &corev1.ConfigMap{}
	key := types.NamespacedName{Name: "guests-2", Namespace: made.Namespace}
	must(t, k8sClient.Get(t.Context(), key, page))
	if !metav1.IsControlledBy(page, made) {
		t.Errorf("the page has the owners %v", page.OwnerReferences)
	}
	old := page.UID
	must(t, k8sClient.Delete(t.Context(), page))
	eventually(t, "the page is back", func() bool { return k8sClient.Get(t.Context(), key, page) == nil && page.UID != old })
}

func TestTheSchemaAndItsRulesAreEnforced(t *testing.T) {
	made := book("guests", namespace(t), "")
	if err := k8sClient.Create(t.Context(), made); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.title") {
		t.Errorf("a book without a title: %v", err)
	}
	made = book("guests", made.Namespace, "Our guests")
	made.Spec.Pages = 3
	must(t, k8sClient.Create(t.Context(), made))
	err := k8sClient.Patch(t.Context(), made, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pages":2}}`)))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "pages are never torn out") {
		t.Errorf("a book with fewer pages: %v", err)
	}
}

func TestWebhooksSetDefaultsAndRefuse(t *testing.T) {
	made := book("guests", namespace(t), "Our guests")
	must(t, k8sClient.Create(t.Context(), made))
	if made.Spec.Pages != 1 {
		t.Errorf("a book without pages got %d", made.Spec.Pages)
	}
	err := k8sClient.Create(t.Context(), book("loud", made.Namespace, "OUR GUESTS"))
	if err == nil || !strings.Contains(err.Error(), `do not shout "OUR GUESTS"`) {
		t.Errorf("a loud title: %v", err)
	}
}

func TestUsersHaveTheRightsThatRolesGrant(t *testing.T) {
	place := namespace(t)
	user, err := testEnv.AddUser(envtest.User{Name: "alice", Groups: []string{"readers"}}, nil)
	must(t, err)
	alice, err := client.New(user.Config(), client.Options{Scheme: scheme.Scheme})
	must(t, err)
	if err := alice.List(t.Context(), &booksv1.GuestbookList{}, client.InNamespace(place)); !apierrors.IsForbidden(err) {
		t.Fatalf("a list without a role: %v", err)
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{"books.example.com"}, Resources: []string{"guestbooks"}, Verbs: []string{"get", "list"}}
	meta := metav1.ObjectMeta{Name: "readers", Namespace: place}
	must(t, k8sClient.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}))
	must(t, k8sClient.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "readers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}))
	eventually(t, "the role is in force", func() bool {
		return alice.List(t.Context(), &booksv1.GuestbookList{}, client.InNamespace(place)) == nil
	})
	kubectl, err := user.Kubectl()
	must(t, err)
	must(t, k8sClient.Create(t.Context(), book("guests", place, "Our guests")))
	stdout, stderr, err := kubectl.Run("get", "guestbooks", "-n", place, "-o", "name")
	printed, _ := io.ReadAll(stdout)
	failed, _ := io.ReadAll(stderr)
	if err != nil || string(printed) != "guestbook.books.example.com/guests\n" {
		t.Errorf("kubectl: %v %q %q", err, printed, failed)
	}
}

func TestObjectsOutliveARestartOfTheServer(t *testing.T) {
	plane := envtest.ControlPlane{Etcd: &envtest.Etcd{StartTimeout: patience}}
	plane.GetAPIServer().CertDir = t.TempDir()
	plane.GetAPIServer().StartTimeout = 2 * patience
	must(t, plane.Start())
	defer func() { must(t, plane.Stop()) }()
	user, err := plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	must(t, err)
	admin, err := client.New(user.Config(), client.Options{})
	must(t, err)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, Data: map[string]string{"k": "v"}}
	eventually(t, "the namespace default is there", func() bool { return admin.Create(t.Context(), made) == nil })
	must(t, plane.GetAPIServer().Stop())
	must(t, plane.GetAPIServer().Start())
	found := &corev1.ConfigMap{}
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(made), found))
	if found.UID != made.UID || found.Data["k"] != "v" {
		t.Errorf("found %v, made %v", found, made)
	}
}
