"""What each setting is for, in a sentence, for people who look at the settings of an installation."""

from collections.abc import Mapping

_TEXT = """
A2A_MAX_JSON_VALUES: Values in the JSON of one request; keys count, too.
A2A_MAX_JSON_DEPTH: How deeply the JSON of a request may be nested.
A2A_MAX_PARTS: Parts of one message.
A2A_MAX_ID_CHARS: Characters of a message, task or conversation id.
A2A_MAX_CONNECTIONS: Open connections; beyond that the one that was idle longest is closed.
A2A_HEADER_TIMEOUT_SECONDS: How long the headers of a request may take.
A2A_BODY_TIMEOUT_SECONDS: How long the body of a request may take.
A2A_IDLE_TIMEOUT_SECONDS: How long a connection may wait for its next request.
A2A_STALLED_READER_SECONDS: When a reader that takes nothing is disconnected.
A2A_MAX_UNSENT_BYTES: What may be buffered for all slow readers together.
A2A_MAX_STREAMS: Streams at the same time.
A2A_MAX_STREAMS_PER_USER: Streams of one person at the same time.
A2A_MAX_WRONG_KEYS: Different wrong keys before an address is blocked for a while.
A2A_WRONG_KEY_MAX_SECONDS: The longest such block.
A2A_SESSION_SECONDS: How long a browser that has sent the key stays signed in; a new key ends all sessions.
A2A_MAX_REQUESTS_PER_MINUTE: Requests of one person in a minute.
A2A_PUSH_NOTIFICATIONS: Whether push notifications are offered and sent.
A2A_PUSH_PRIVATE_HOSTS: Receivers of push notifications in private networks that may be reached.
A2A_PUSH_CONFIGS_PER_TASK: Push configs of one task.
A2A_PUSH_QUEUE_PER_CONFIG: Notifications that wait for one push config; of more, the oldest is dropped.
A2A_PUSH_QUEUE_PER_USER: Notifications that wait for the tasks of one person.
A2A_PUSH_QUEUE_LIMIT: Notifications that wait in all.
A2A_PUSH_ATTEMPTS: How often the delivery of a notification is tried.
A2A_PUSH_MAX_AGE_SECONDS: When a notification that could not be delivered is dropped.
A2A_PUSH_RETRY_SECONDS: The delay before the second attempt; it doubles with each further one.
A2A_PUSH_MAX_RETRY_SECONDS: The longest delay between two attempts.
A2A_PUSH_TIMEOUT_SECONDS: How long one delivery may take.
A2A_PUSH_MAX_CONNECTIONS: Deliveries at the same time.
A2A_PUSH_MAX_CONNECTIONS_PER_HOST: Deliveries to one host at the same time.
A2A_PUSH_MAX_BYTES: The largest body; above it a notification holds the status alone.
A2A_HOST: The address to listen on; beyond loopback only with a key.
A2A_PORT: The port to listen on.
EXTERNAL_URL: The public address, as it is published in the agent card.
A2A_AUTH_SHARED_KEY: The key that clients must send as a bearer token.
A2A_AUTH_DELEGATE_KEY: A second key, whose holder may act for other people.
A2A_ALLOW_UNAUTHENTICATED: Whether to listen beyond loopback without a key.
A2A_AUTH_OAUTH2: Refuses to start without a key: tokens of an identity provider are not checked here.
A2A_ALLOWED_HOSTS: Further host names that are served.
A2A_ALLOWED_ORIGINS: Origins of other web pages that may use the server.
A2A_MAX_REQUEST_BYTES: The size of one request.
A2A_MAX_FILE_BYTES: The size of the files in one message.
A2A_CARD_SIGNING_KEY_FILE: The private key that signs the agent card.
A2A_KEEP_ALIVE_SECONDS: How often a silent stream sends a sign of life.
A2A_V03_SHAPE: The shape of streams for clients of protocol 0.3.
A2A_TEXT_DECISIONS: Whether clients without forms may approve and reject with words.
A2A_AGENT_NAME: The name in the agent card.
WHEN_BUSY: What happens to a question while its conversation is busy.
SHUTDOWN_SECONDS: How long runs may still work when the server stops.
LLM_STREAM_CLIENT: Whose client reads the streams of models: ours or their library's.
LLM_MAX_CONNECTIONS: Connections to all model servers together.
LLM_MAX_RESPONSE_BYTES: The size of one answer of a model.
LLM_MAX_EVENT_BYTES: The size of one event of its stream.
LLM_MAX_EVENT_VALUES: Values in one event of its stream.
LLM_MODEL: The language model, as provider:name; without one the embedded router answers.
LLM_FALLBACK_MODELS: Models that take over, in this order, when the model fails.
LLM_TEMPERATURE: How freely the model writes.
LLM_TIMEOUT_SECONDS: How long a model may be silent.
LLM_ATTEMPTS: How often a failing request to a model is made.
LLM_RETRY_SECONDS: How long the first retry waits; the next ones wait longer.
LLM_CONTEXT_TOKENS: How much of a conversation a model is given; not set, its own size counts.
LLM_PROMPT_CACHE: Whether the prompt cache of the model's provider is used.
LLM_RESPONSES_API: Whether OpenAI's Responses API is used, and not chat completions.
LLM_TOOL_IMAGES: Whether the model is shown the images in tool results; auto asks its profile.
AWS_BEDROCK_PROVIDER: The provider of a Bedrock model that is named by an ARN.
LANGGRAPH_RECURSION_LIMIT: Steps of one run, for the supervisor and for each agent.
MODEL_CALL_LIMIT: Model calls of each agent for one question.
TOOL_CALL_LIMIT: Tool calls of each agent for one question.
RUN_MODEL_CALL_LIMIT: Model calls of one run, all its agents together.
RUN_TOOL_CALL_LIMIT: Tool calls of one run, all its agents together.
RUN_TOKEN_LIMIT: Tokens of one run, all its agents together.
TOOL_CALLS_AT_ONCE: Tool calls in one message of a model; the rest are dropped.
TOOL_ARGUMENTS_MAX_CHARS: Characters of arguments in one message of a model.
TOOL_MAX_OUTPUT_CHARS: Characters of a tool's result that is not stored; the rest is cut off.
TOOL_SCHEMA_BUDGET_CHARS: Characters of tool schemas in a model request of an agent; it searches the rest.
TOOL_RESULT_MAX_CHARS: Characters of a tool's result in a message; a longer one is stored, and read in parts.
TOOL_RESULT_RUN_MAX_BYTES: Stored tool results of one run, compressed; the oldest ones go first.
TOOL_RESULT_TOTAL_MAX_BYTES: Stored tool results of all runs, compressed; the oldest ones go first.
TOOL_RESULT_QUERY_SECONDS: How long one query of a stored tool result may take.
TOOL_IMAGE_MAX_BYTES: The size of an image in a tool's result that a model is shown; a larger one is not.
TOOL_IMAGES_MAX_SHOWN: How many of the last images in tool results a model request carries.
RUN_TIMEOUT_SECONDS: How long a run may work.
RUN_UNFOLLOWED_SECONDS: How long a run goes on that nobody follows.
RUNS_MAX_WORKING: Runs that work at once; the rest wait in order.
RUNS_MAX_WORKING_PER_PERSON: Runs of one person that work at once.
RUN_QUEUE_LIMIT: Questions that may wait; further ones are refused.
RUN_QUEUE_LIMIT_PER_PERSON: Questions of one person that may wait.
RUN_CRASH_LIMIT: How often the server may die under a run before the run is given up.
AGENT_TIMEOUT_SECONDS: How long a delegation may take.
USE_STRUCTURED_RESPONSE: Whether the model is asked for a structured answer.
PROMPT_CONFIG: A YAML file with prompts.
LANGGRAPH_DEV: Leaves checkpoints to LangGraph Studio.
AGENTS_CONFIG: Files or folders with more agents.
CAIPE_HOME: The folder of conversations, caches and installed tool servers.
REMEMBER_FACTS: Whether facts that a user asks to be remembered are kept for later conversations.
READ_ONLY: Refuses everything that could change something.
ASK_ON_UNTRUSTED_CONTENT: Whether changes need an approval once a conversation holds text of others.
REQUEST_TIMEOUT_SECONDS: How long a form or an approval waits for an answer.
WORKFLOWS_CONFIG: A folder or file with more workflows.
TASK_CONFIG_PATH: A file with workflows in the older format.
ENABLE_RAG: Switches the knowledge base on or off; not set, it is on when it holds documents.
RAG_SERVER_URL: The address of a knowledge base server elsewhere.
RAG_SERVER_TOKEN: The token for that server.
SEARCH_MAX_CALLS: Searches for one question.
FETCH_DOCUMENT_MAX_CALLS: Documents that are fetched for one question.
RAG_MAX_SEARCH_RESULTS: Results of one search.
RAG_MAX_OUTPUT_CHARS: Characters of one result of the knowledge base.
RAG_DATABASE_URL: PostgreSQL with pgvector, in the place of the embedded index.
RAG_EMBEDDINGS: What makes the vectors that a search by meaning needs.
RAG_EMBEDDED_MODEL: Which embedded model makes vectors.
EMBEDDINGS_BASE_URL: The address of an endpoint for embeddings.
EMBEDDINGS_MODEL: The model of that endpoint.
EMBEDDINGS_API_KEY: The key for that endpoint.
RAG_ALLOW_PRIVATE_ADDRESSES: Whether the knowledge base may read from private networks.
RAG_FETCH_URL_PRIVATE_HOSTS: Hosts in private networks that fetch_url may reach.
RAG_WEB_PRIVATE_HOSTS: Hosts in private networks that web datasources may reach.
RAG_GIT_PRIVATE_HOSTS: Hosts in private networks that git datasources may reach.
RAG_INGEST_FOLDERS: Folders of the server's machine that may be added as datasources from elsewhere.
RAG_PUSH_MAX_BYTES: The size of one batch of pushed documents.
RAG_PUSH_MAX_DOCUMENTS: Documents in one pushed batch.
RAG_UPLOAD_MAX_BYTES: The size of one uploaded file.
RAG_UPLOADS_MAX_BYTES: The size of all uploaded files together.
RAG_UPLOADS_MAX_FILES: How many uploaded files are kept.
RAG_FETCH_MAX_BYTES: The size of one page, or of one answer of an API.
RAG_FETCH_TIMEOUT_SECONDS: How long one page may take.
RAG_SEARCH_TIMEOUT_SECONDS: How long one search may take.
RAG_WORKER_IDLE_SECONDS: When an unused worker process ends.
RAG_WORKER_MAX_CALLS: Calls that one worker process has at once.
RAG_READERS: Documents that are read at the same time.
RAG_EMBEDDING_THREADS: Threads that make vectors of documents.
ATLASSIAN_API_URL: The address of Jira and Confluence.
ATLASSIAN_EMAIL: The user of Atlassian Cloud.
ATLASSIAN_TOKEN: The API token of that user.
CONFLUENCE_API_URL: The address of Confluence, if it is another one.
CONFLUENCE_PERSONAL_TOKEN: A personal access token of Confluence Data Center.
CONFLUENCE_SPACES_FILTER: The only spaces that are read.
JIRA_PROJECTS_FILTER: The only projects that are read.
JIRA_PERSONAL_TOKEN: A personal access token of Jira Data Center.
GITHUB_API_URL: The address of GitHub's API.
GITHUB_TOKEN: A token for GitHub.
GITHUB_PERSONAL_ACCESS_TOKEN: A token for GitHub, if GITHUB_TOKEN is not set.
SLACK_BOT_TOKEN: The bot token with which Slack is read.
SLACK_API_URL: The address of Slack's API.
BACKSTAGE_URL: The address of Backstage's backend.
BACKSTAGE_APP_URL: The address of Backstage for links, if it is another one.
BACKSTAGE_API_TOKEN: A token for Backstage.
S3_ENDPOINT_URL: The address of an S3 server, if it is not Amazon's.
AWS_REGION: The region of AWS.
AWS_DEFAULT_REGION: The region of AWS, if AWS_REGION is not set.
AWS_ACCESS_KEY_ID: The id of an AWS key.
AWS_SECRET_ACCESS_KEY: The secret of that key.
AWS_SESSION_TOKEN: The session token of that key.
RAG_SOURCE_MAX_WAIT_SECONDS: How long one request to a source waits for rate limits and failures.
RAG_SOURCE_LISTING_HOURS: How often large sources are listed as a whole.
ENABLE_SKILLS: Switches skills on or off.
SKILLS_DIR: A folder with more skills.
SKILL_HUBS: Git repositories with skills.
SKILL_HUBS_ALLOW_PRIVATE_ADDRESSES: Whether hubs that are added later may be in private networks.
SKILL_HUBS_PRIVATE_HOSTS: Hosts in private networks that hubs may use.
DISTRIBUTED_AGENTS: The agents that run as services, or all.
DISTRIBUTED_MODE: Whether all agents run as services.
SKIP_AGENT_CONNECTIVITY_CHECK: Whether services are not checked.
AGENT_CHECK_TIMEOUT_SECONDS: How long the check of a service may take.
AGENT_CHECK_SECONDS: How often services are checked.
AGENT_CONNECT_TIMEOUT_SECONDS: How long connecting to a service may take.
AGENT_IDLE_TIMEOUT_SECONDS: How long a service may be silent.
THIRD_PARTY_LOST_SECONDS: How long a third-party agent may leave polls unanswered.
AGENT_MAX_MESSAGE_BYTES: The size of one answer or event of a service.
AGENT_MAX_MESSAGE_VALUES: Values in one answer or event of a service.
THIRD_PARTY_MAX_MESSAGE_VALUES: Values in one answer or event of a third-party agent.
PLACEMENT_FALLBACK: Whether an agent runs here when its service cannot be reached.
GIT_MAX_BYTES: The size of one git repository.
GIT_MAX_FILES: Files of one git repository.
MCP_CONNECT_TIMEOUT: How long a tool server may take to start.
MCP_CALL_TIMEOUT: How long a tool call may show no progress.
MCP_IDLE_SECONDS: How long a tool server may be unused before it is ended; 0 means never.
MCP_QUESTION_SECONDS: How long a tool server may wait for a person's answer in the middle of a call.
MCP_SANDBOX: Whether tool servers run in a sandbox.
MCP_HOLD_CHANGED_TOOLS: Whether tools that have changed are held until a person trusts them.
MCP_MAX_MESSAGE_BYTES: The size of one message of a tool server.
MCP_MAX_MESSAGE_VALUES: Values in one message of a tool server.
MCP_CHECK_SERVERS: Whether each tool server is tried once after the start.
MCP_CHECK_DELAY_SECONDS: How long after the start.
MCP_CHECK_SECONDS: How often those that failed are tried again.
MCP_OAUTH_ENCRYPTION_KEY: Encrypts the stored tokens of tool servers; not set: a key file in CAIPE_HOME.
MCP_OAUTH_PRIVATE_HOSTS: Authorization servers that may be in private networks.
MCP_OAUTH_TIMEOUT_SECONDS: How long an authorization server may take to answer.
MCP_OAUTH_SIGN_IN_SECONDS: How long a person may take to sign in.
MCP_OAUTH_MAX_PENDING: Sign-ins that are not finished.
MCP_OAUTH_MAX_PENDING_PER_USER: Sign-ins of one person that are not finished.
MCP_OAUTH_MAX_LOGINS: Stored tokens of people and servers.
MCP_OAUTH_MAX_SESSIONS: Sessions of different people with one hosted tool server.
NETWORK_ALLOWED_HOSTS: Hosts that tools may reach without an approval.
NETWORK_ALLOW_PRIVATE_ADDRESSES: Whether network checks may reach this machine and private networks.
NETWORK_OWN_PORTS: Further ports of this platform on this machine.
NETWORK_DNS_SERVERS: The DNS servers of network checks.
NETWORK_HOST_LIMIT: Hosts that one run may reach.
NETWORK_PORT_LIMIT: Ports of one port check.
NETWORK_PORTS_PER_RUN: Ports that one run may check.
STREAM_COALESCE_SECONDS: How long pieces of text are joined before they are stored.
STREAM_COALESCE_CHARS: How many characters are joined before they are stored.
DATABASE_URL: The database of conversations; by default a file in CAIPE_HOME.
LANGGRAPH_CHECKPOINT_TYPE: The kind of database for checkpoints.
LANGGRAPH_CHECKPOINT_REDIS_URL: The address of Redis for checkpoints.
LANGGRAPH_CHECKPOINT_POSTGRES_DSN: The address of PostgreSQL for checkpoints.
LANGGRAPH_CHECKPOINT_MONGODB_URI: The address of MongoDB for checkpoints.
LANGGRAPH_CHECKPOINT_TTL_MINUTES: How long Redis and MongoDB keep checkpoints.
MONGODB_URI: MongoDB for conversations, if nothing else is set.
REDIS_URL: Redis for conversations, if nothing else is set.
STORAGE_REQUIRED: Whether the server refuses to start without its database.
STORAGE_TIMEOUT_SECONDS: How long a database may take to answer at the start.
LANGGRAPH_STORE_TYPE: The kind of database for facts, if it is another one.
RETENTION_DAYS: How long ended runs are kept.
SHARE_DAYS: How long a link to a shared conversation can be used.
SHARES_MAX_PER_PERSON: Conversations that one person shares at a time; 0 switches sharing off.
RUN_LOG_CACHE_BYTES: Memory for the newest events, from which readers are served.
SLACK_INTEGRATION_BOT_MODE: How the Slack bot reaches Slack.
SLACK_INTEGRATION_BOT_TOKEN: The Slack bot's token.
SLACK_INTEGRATION_APP_TOKEN: The Slack bot's token for Socket Mode.
SLACK_INTEGRATION_SIGNING_SECRET: The secret that Slack signs requests with.
SLACK_INTEGRATION_BOT_CONFIG: A YAML file with what the bot may do in each channel.
SLACK_INTEGRATION_HOST: The address that the bot listens on.
SLACK_INTEGRATION_PORT: The port that the bot listens on.
SLACK_INTEGRATION_API_URL: The address of Slack's API for the bot.
SLACK_INTEGRATION_STREAMING: Whether the bot uses Slack's streams.
SLACK_RBAC_ENABLED: Refuses to start the bot without rules for channels: roles are not checked here.
SLACK_INTEGRATION_APPROVAL_FILE_BYTES: The longest call that the bot attaches as a file.
LOG_LEVEL: How much is logged.
"""


def _read_descriptions() -> dict[str, str]:
    descriptions: dict[str, str] = {}
    for line in _TEXT.strip().splitlines():
        name, _, description = line.partition(": ")
        descriptions[name] = description
    return descriptions


DESCRIPTIONS: Mapping[str, str] = _read_descriptions()
