// Package controller holds the controller and the webhooks of Guestbook.
package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	booksv1 "kubeloop.invalid/guestbook/api/v1"
)

// GuestbookReconciler makes a ConfigMap for each page.
type GuestbookReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// Reconcile makes the pages that are missing and reports when all are there.
func (r *GuestbookReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	book := &booksv1.Guestbook{}
	if err := r.Get(ctx, request.NamespacedName, book); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	for number := range book.Spec.Pages {
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", book.Name, number+1), Namespace: book.Namespace,
		}}
		_, err := controllerutil.CreateOrUpdate(ctx, r.Client, page, func() error {
			page.Data = map[string]string{"title": book.Spec.Title}
			return controllerutil.SetControllerReference(book, page, r.Scheme)
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	changed := meta.SetStatusCondition(&book.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllPages",
		Message: fmt.Sprintf("%d pages", book.Spec.Pages), ObservedGeneration: book.Generation,
	})
	if !changed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, book)
}

// SetupWithManager registers the controller and the webhooks.
func (r *GuestbookReconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewWebhookManagedBy(mgr, &booksv1.Guestbook{}).WithDefaulter(&defaulter{}).WithValidator(&validator{}).Complete()
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&booksv1.Guestbook{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

type defaulter struct{}

// Default gives a book one page.
func (*defaulter) Default(_ context.Context, book *booksv1.Guestbook) error {
	if book.Spec.Pages == 0 {
		book.Spec.Pages = 1
	}
	return nil
}

type validator struct{}

var _ admission.Validator[*booksv1.Guestbook] = &validator{}

func (*validator) ValidateCreate(_ context.Context, book *booksv1.Guestbook) (admission.Warnings, error) {
	return check(book)
}

func (*validator) ValidateUpdate(_ context.Context, _, book *booksv1.Guestbook) (admission.Warnings, error) {
	return check(book)
}

func (*validator) ValidateDelete(context.Context, *booksv1.Guestbook) (admission.Warnings, error) {
	return nil, nil
}

func check(book *booksv1.Guestbook) (admission.Warnings, error) {
	if strings.ToUpper(book.Spec.Title) == book.Spec.Title {
		return nil, fmt.Errorf("do not shout %q", book.Spec.Title)
	}
	return nil, nil
}
