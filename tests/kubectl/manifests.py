"""Objects that the kubectl tests apply."""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: nginx, image: "nginx:1.25", ports: [{containerPort: 80}], resources: {requests: {cpu: 100m, memory: 64Mi}}}
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: solo, labels: {app: solo, tier: back}}
spec:
  containers:
    - {name: main, image: "busybox:1.36", command: [sleep, "3600"]}
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 80}]
"""

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: books.library.example.com}
spec:
  group: library.example.com
  scope: Namespaced
  names: {plural: books, singular: book, kind: Book, listKind: BookList, shortNames: [bk], categories: [all]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns:
        - {name: Author, type: string, jsonPath: .spec.author}
        - {name: Pages, type: integer, jsonPath: .spec.pages, priority: 1}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              required: [author, title]
              properties:
                author: {type: string, minLength: 1}
                title: {type: string}
                pages: {type: integer, minimum: 1, default: 100}
                tags: {type: array, items: {type: string}}
            status:
              type: object
              properties:
                lent: {type: boolean}
"""

BOOK = """
apiVersion: library.example.com/v1
kind: Book
metadata: {name: david-copperfield}
spec: {author: Charles Dickens, title: David Copperfield}
"""
