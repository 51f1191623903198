# One image for the supervisor and for every agent:
#
#   docker build -t caipe .
#   docker build -t caipe --build-arg WITH_NODE=1 --build-arg AGENTS="argocd jira" .     with the tool servers of these agents
#   docker run --env-file .env -p 127.0.0.1:8000:8000 caipe                              the supervisor
#   docker run -e A2A_AUTH_SHARED_KEY -e ARGOCD_API_URL -e ARGOCD_TOKEN caipe agent argocd
#
# Which agents need Node.js (argocd, kubernetes, slack) is in their definitions, under `install`. It holds the clients of all databases,
# the embedding model, git and bubblewrap; docs/containers.md says how it is configured, and how it gets more.

# The web page, built with a Node.js that is in no other stage.
FROM python:3.12-slim AS page
WORKDIR /src
COPY requirements-node.lock ./
RUN python -m venv /opt/node \
 && /opt/node/bin/pip install --quiet --no-cache-dir --only-binary :all: --require-hashes --no-deps -r requirements-node.lock
COPY ui ui
RUN cd ui && export PATH="/opt/node/bin:$PATH" && npm ci --ignore-scripts --no-audit --no-fund && npm run build

# 3.12: the tool server of the agent pagerduty runs on no other.
FROM python:3.12-slim AS build
WORKDIR /src
# The lock is complete: every file is checked by its hash, none is built here, and nothing else can be installed.
COPY requirements-image.lock ./
RUN python -m venv /opt/caipe \
 && /opt/caipe/bin/pip install --quiet --no-cache-dir --only-binary :all: --require-hashes --no-deps -r requirements-image.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY docs docs
COPY ai_platform_engineering ai_platform_engineering
COPY --from=page /src/ai_platform_engineering/web/static ai_platform_engineering/web/static
# The mark tells the program that nobody can install into this environment: its hints are others then.
RUN /opt/caipe/bin/pip install --quiet --no-cache-dir --no-index --no-deps --no-build-isolation . && touch /opt/caipe/caipe-image

FROM python:3.12-slim
ARG WITH_NODE=
RUN if [ -n "$WITH_NODE" ]; then \
      apt-get update && apt-get install -y --no-install-recommends nodejs npm && rm -rf /var/lib/apt/lists/*; \
    fi
# git for documents and skills in repositories; bubblewrap, the sandbox of tool servers, where the container may make namespaces.
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap git && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --home-dir /var/lib/caipe --create-home --shell /usr/sbin/nologin caipe
COPY --from=build /opt/caipe /opt/caipe
ENV PATH=/opt/caipe/bin:$PATH PYTHONUNBUFFERED=1

# Not in the volume, which would keep the servers of an older image. On PATH they are found after those that
# `caipe agents install` puts into the volume of a running container.
ARG AGENTS=
# Installed for their owner alone, and started by another user.
RUN for name in $AGENTS; do CAIPE_HOME=/opt/servers caipe agents install "$name" || exit 1; done; \
    if [ -d /opt/servers ]; then chmod -R a+rX /opt/servers; fi; \
    for command in /opt/servers/agents/*/venv/bin/*mcp* /opt/servers/agents/*/node_modules/.bin/*mcp*; do \
      if [ -e "$command" ]; then ln -sf "$command" /usr/local/bin/; fi; \
    done

ENV CAIPE_HOME=/var/lib/caipe A2A_HOST=0.0.0.0 A2A_PORT=8000
WORKDIR /var/lib/caipe
VOLUME /var/lib/caipe
USER 10001:10001
EXPOSE 8000
# Without a proxy, whatever the environment says: it asks this container.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ['A2A_PORT']}/health\", timeout=4)"]
ENTRYPOINT ["caipe"]
CMD ["serve"]
