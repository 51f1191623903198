# One image for the supervisor and for every agent:
#
#   docker build -t caipe .
#   docker build -t caipe --build-arg WITH_NODE=1 --build-arg AGENTS="argocd jira" .     with the tool servers of these agents
#   docker run -e A2A_AUTH_SHARED_KEY -p 127.0.0.1:8000:8000 caipe                       the supervisor
#   docker run -e A2A_AUTH_SHARED_KEY -e ARGOCD_API_URL -e ARGOCD_TOKEN caipe agent argocd
#
# Which agents need Node.js (argocd, kubernetes, slack) is in their definitions, under `install`.

# 3.12: the tool server of the agent pagerduty runs on no other.
FROM python:3.12-slim AS build
WORKDIR /src
# All of the lock is checked by its hashes; below, only what the program needs of it is installed, and nothing else can be.
COPY requirements.lock ./
RUN pip wheel --quiet --no-cache-dir --require-hashes --no-deps -r requirements.lock -w /wheels
COPY pyproject.toml README.md LICENSE ./
COPY docs docs
COPY ai_platform_engineering ai_platform_engineering
RUN python -m venv /opt/caipe && /opt/caipe/bin/pip install --quiet --no-cache-dir --no-index --find-links /wheels .

FROM python:3.12-slim
ARG WITH_NODE=
RUN if [ -n "$WITH_NODE" ]; then \
      apt-get update && apt-get install -y --no-install-recommends nodejs npm && rm -rf /var/lib/apt/lists/*; \
    fi
RUN useradd --uid 10001 --home-dir /var/lib/caipe --create-home --shell /usr/sbin/nologin caipe
COPY --from=build /opt/caipe /opt/caipe
ENV PATH=/opt/caipe/bin:$PATH PYTHONUNBUFFERED=1

# Not in the volume, which would keep the servers of an older image. On PATH they are found after those that
# `caipe agents install` puts into the volume of a running container.
ARG AGENTS=
RUN for name in $AGENTS; do CAIPE_HOME=/opt/servers caipe agents install "$name" || exit 1; done; \
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
