"""Names and random text that look like a cluster's. Everything is drawn from the generator that is passed in."""

from __future__ import annotations

import random

HEX = "0123456789abcdef"
SAFE = "bcdfghjklmnpqrstvwxz2456789"  # the alphabet of Kubernetes' generated names
NAMESPACES = [
    "payments",
    "checkout",
    "search",
    "catalog",
    "identity",
    "ml-serving",
    "ml-training",
    "data-platform",
    "ingress",
    "monitoring",
    "logging",
    "messaging",
    "kube-system",
    "cert-manager",
    "argocd",
    "batch",
    "recommendations",
    "inventory",
    "notifications",
    "edge",
    "gateway",
    "billing",
    "fraud",
    "staging",
]
WORDS = [
    "api",
    "worker",
    "gateway",
    "indexer",
    "router",
    "scheduler",
    "ranker",
    "cache",
    "proxy",
    "consumer",
    "writer",
    "reader",
    "ingest",
    "export",
    "sync",
    "auth",
    "session",
    "quota",
    "ledger",
    "mailer",
    "webhook",
    "crawler",
    "feature-store",
    "embedder",
    "tokenizer",
    "reranker",
    "broker",
    "mirror",
    "audit",
    "catalogue",
]
ENV = [
    "LOG_LEVEL",
    "LOG_FORMAT",
    "HTTP_PORT",
    "GRPC_PORT",
    "METRICS_PORT",
    "DATABASE_URL",
    "DATABASE_POOL_SIZE",
    "DATABASE_PASSWORD",
    "REDIS_URL",
    "KAFKA_BROKERS",
    "KAFKA_GROUP_ID",
    "KAFKA_TOPIC",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "FEATURE_FLAGS_URL",
    "SENTRY_DSN",
    "JWT_ISSUER",
    "JWT_AUDIENCE",
    "S3_BUCKET",
    "S3_ENDPOINT",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "CACHE_TTL_SECONDS",
    "MAX_CONNECTIONS",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "JAVA_TOOL_OPTIONS",
    "PYTHONUNBUFFERED",
    "WORKER_CONCURRENCY",
    "REQUEST_TIMEOUT_MS",
    "RETRY_BUDGET",
    "RATE_LIMIT_RPS",
    "TENANT_MODE",
    "ENVIRONMENT",
    "CLUSTER_NAME",
    "API_BASE_URL",
    "OAUTH_CLIENT_ID",
    "OAUTH_CLIENT_SECRET",
    "TLS_CERT_FILE",
    "TLS_KEY_FILE",
    "SHUTDOWN_GRACE_SECONDS",
    "HEALTH_PATH",
    "PROFILE_ENABLED",
]
AGENTS = ["node-exporter", "log-shipper", "cni-agent", "csi-node", "node-problem-detector", "gpu-device-plugin"]
STATEFUL = [
    "postgres",
    "kafka",
    "zookeeper",
    "redis-cluster",
    "elasticsearch",
    "prometheus",
    "etcd",
    "clickhouse",
    "rabbitmq",
    "minio",
    "cassandra",
    "loki",
]
#: The cluster's "now": 2026-09-09.
EPOCH = 1_789_000_000
#: The resourceVersion of the list.
LIST_RV = 912_345_678


def text(rng: random.Random, alphabet: str, n: int) -> str:
    return "".join(rng.choices(alphabet, k=n))


def hexes(rng: random.Random, n: int) -> str:
    return f"{rng.getrandbits(4 * n):0{n}x}"


def uid(rng: random.Random) -> str:
    h = hexes(rng, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def stamp(seconds: int) -> str:
    """RFC 3339 of seconds since 1970."""
    days, rest = divmod(seconds, 86400)
    z = days + 719468  # civil from days
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    d = doy - (153 * mp + 2) // 5 + 1
    m = mp + 3 if mp < 10 else mp - 9
    y = yoe + era * 400 + (m <= 2)
    return f"{y:04d}-{m:02d}-{d:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}Z"
