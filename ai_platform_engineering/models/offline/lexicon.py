"""What the offline router knows of English and of the trade: plain tables, no answers."""


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that say nothing about the subject of a request.
STOP_WORDS = word_set("""
    a about again all also am an and any anyone are as at be been being both but by can cannot could
    did do does doing done each either else every for from give gives go got had has have having he
    hello help her here hey hi his how i if in into is it its itself just know kindly let like make
    many may me might mine more most much must my need needs no nor not now of off ok okay on once
    one only or other our ours out over own per please really right same say shall she should so
    some such tell than thank thanks that the their them then there these they thing things this
    those though through to too toward try two under until us very via want was we well were what
    whatever when where whether which while who whom whose why will wish with within without would
    yes yet you your yours
""")

# Words that fit nearly every tool: they decide only between tools that are otherwise alike.
GENERIC_WORDS = word_set("""
    agent answer brief call check current data detail details describe display does explain fetch
    find get give info information inspect item latest list look name new output print provide
    question report result results retrieve return see set short show state status summary system
    task test tool use value verify view work
""")

# Words with many meanings: ports are open, and so are tickets and incidents.
AMBIGUOUS_WORDS = word_set("open closed service page event message")

# Groups of words that stand for one another. A word may be in several groups.
SYNONYMS: dict[str, str] = {
    "port": (
        "port open closed reachable listening listen tcp connect connection connectivity accept firewall "
        "blocked ping reach"
    ),
    "network": "cidr subnet network prefix netmask supernet range block broadcast",
    "certificate": "cert certificate tls ssl x509 expire expiry expiration issuer",
    "dns": "dns resolve lookup record domain nameserver mailserver mx txt cname aaaa zone ttl dig nslookup",
    "reverse": "reverse ptr rdns",
    "web": (
        "http https url website site web webpage up down online alive respond response redirect endpoint "
        "healthcheck curl wget"
    ),
    "address": "ip address ipv4 ipv6",
    "contain": "contain include inside belong hold comprise cover within fall part",
    "overlap": "overlap intersect conflict collide clash disjoint",
    "application": "app application sync synced outofsync deploy",
    "deployment": "deploy deployment rollout release",
    "synchronise": "sync synced synchronise synchronize outofsync drift gitops",
    "ticket": "ticket issue bug story epic",
    "repository": "repo repository",
    "pullrequest": "pr pullrequest mergerequest mr review",
    "pipeline": "pipeline workflow build ci job action",
    "incident": "incident outage alert alarm page",
    "oncall": "oncall rota rotation schedule escalation",
    "log": "log event",
    "document": "document doc wiki article runbook page knowledge documentation kb",
    "search": "search find query lookup look",
    "member": "user person people member assignee owner",
    "pod": "pod container workload",
    "cluster": "cluster k8s kubernetes eks",
    "metric": "metric cpu memory usage load",
    "weather": "weather forecast temperature rain wind",
    "message": "message chat post reply",
    "channel": "channel room space thread",
    "cost": "cost spend bill billing price",
    "version": "version release tag",
    "health": "health healthy unhealthy degraded",
    "location": "location city place town",
    "limit": "limit max maximum top first last count size latest",
}

# Words that mean one of the values that a tool lists for an argument.
VALUE_WORDS: dict[str, str] = {
    "a": "ipv4",
    "aaaa": "ipv6",
    "mx": "mail mailserver",
    "ns": "nameserver",
    "txt": "spf dmarc",
    "ptr": "reverse",
    "open": "opened unresolved",
    "closed": "done finished resolved",
    "asc": "ascending oldest",
    "desc": "descending newest",
}

# Several words that act as one.
PHRASES: dict[str, str] = {
    "pull request": "pullrequest",
    "pull requests": "pullrequest",
    "merge request": "mergerequest",
    "merge requests": "mergerequest",
    "on call": "oncall",
    "on-call": "oncall",
    "look up": "lookup",
    "looks up": "lookup",
    "name server": "nameserver",
    "name servers": "nameserver",
    "mail server": "mailserver",
    "mail servers": "mailserver",
    "host name": "hostname",
    "host names": "hostname",
    "web site": "website",
    "out of sync": "outofsync",
    "knowledge base": "knowledge",
    "argo cd": "argocd",
    "pager duty": "pagerduty",
    "in sync": "sync",
}

# What well-known products are about, for agents whose description does not say. The key is a word of the
# agent's name.
PRODUCTS: dict[str, str] = {
    "argocd": "argo app application deploy deployment sync gitops rollout rollback",
    "aws": "ec2 s3 eks lambda rds iam vpc cloudwatch cloud region bucket instance cost",
    "backstage": "catalog component service owner template",
    "confluence": "wiki page space document runbook",
    "github": "repo repository pullrequest pr commit branch build ci workflow action release",
    "gitlab": "repo repository mergerequest mr commit branch build ci pipeline",
    "jira": "ticket issue epic sprint story bug board backlog",
    "komodor": "kubernetes cluster service rca",
    "kubernetes": "pod deployment namespace node cluster service container k8s scale",
    "netutils": (
        "port dns cidr subnet network tls ssl certificate http url ip address host private ping reachable "
        "dig nslookup curl"
    ),
    "pagerduty": "incident oncall alert escalation",
    "slack": "channel message thread",
    "splunk": "log search index spl",
    "victorops": "incident oncall alert",
    "weather": "weather forecast temperature rain wind",
    "webex": "room message meeting",
}

# Verbs that change something, by what they do. A tool with such a verb in its name is used only for an order
# with that verb.
CHANGES: dict[str, str] = {
    "create": "create add new open file raise make register insert fork clone import upload push invite",
    "delete": "delete remove destroy drop purge uninstall erase archive revoke kick ban",
    "update": "update edit change set modify patch rename put write replace rotate reset lock unlock",
    "send": "send post publish notify reply comment message",
    "sync": "sync synchronise synchronize refresh",
    "deploy": "deploy install upgrade apply provision promote",
    "rollback": "rollback revert undo",
    "restart": "restart reboot reload bounce rerun retry",
    "start": "start launch run exec execute trigger invoke enable",
    "stop": "stop terminate kill cancel abort pause suspend shutdown disable evict",
    "scale": "scale resize drain cordon uncordon",
    "merge": "merge approve close transition assign resolve acknowledge ack move",
    "grant": "grant attach detach",
}
# Of these, the ones that also read: an order to "resolve a name" or to "run a check" changes nothing.
ALSO_READ = word_set("new open run resolve message comment set move file refresh put make execute")
# In the name of a tool these are nouns, unless they come first: `issue_comment_list`, but `comment_on_issue`.
NOUNS_IN_NAMES = word_set("new open message comment file")

# What follows such a verb when it is a noun: "sync history" asks, "sync the app" orders.
NOUNS_AFTER = word_set("""
    conflict conflicts count counts date detail details error errors event events frequency history
    info limit limits list log logs note notes option options plan policies policy rate reason
    reasons request requests result results schedule setting settings state status time times window
    windows
""")
DETERMINERS = word_set("the a an my our your this that these those all it them new every each")

# Where a clause of its own begins after a comma or an "and".
CLAUSE_STARTS = word_set("""
    are can check compare count could create delete deploy describe did do does explain fetch find
    get give has have how inspect is list look lookup open ping please query resolve restart
    rollback run scale search send show sync tell test update verify was were what whats when where
    whether which who whose why will would add remove close assign merge post trigger analyse
    analyze summarise summarize calculate compute determine identify report write draft translate
    generate buy book plan convert remind
""")
QUESTION_STARTS = word_set("is are was were does do did has have can could will would should")
QUESTION_WORDS = QUESTION_STARTS | word_set("what which who whose whom how when where why")
NEGATIONS = word_set("not no never without isn't aren't doesn't don't cannot can't won't hasn't wasn't")
POLITE = word_set("please kindly hey hi hello ok okay so now just also then and or but")
PRONOUNS = word_set("it its them they same")
LAST_PRONOUNS = word_set(
    "that this those these there one in inside within"
)  # elsewhere in a sentence they mean many other things
FOLLOW_UPS = ("and ", "also ", "what about ", "how about ", "same for ", "then ", "or ", "but ")

GREETINGS = word_set(
    "hi hello hey hallo howdy greetings yo hiya morning evening afternoon good thanks thank cheers thx ty bye"
)
THANKS = word_set("thanks thank cheers thx ty")
MODEL_QUESTIONS = (
    *("which model", "what model", "what llm", "which llm", "language model", "set a model", "set the model"),
    *("set up a model", "configure a model", "configure the model", "use a model", "add a model"),
)
CAPABILITY_QUESTIONS = (
    "what can you do",
    "what do you do",
    "what can i ask",
    "what can i do",
    "who are you",
    "what are you",
    "how do you work",
    "how does this work",
    "which agents",
    "what agents",
    "list agents",
    "list the agents",
    "list your agents",
    "show agents",
    "what tools",
    "which tools",
    "list tools",
    "list your tools",
    "your capabilities",
    "help me get started",
)

# Ports that people call by the service behind them.
SERVICES: dict[str, int] = {
    "ssh": 22,
    "ftp": 21,
    "smtp": 25,
    "http": 80,
    "https": 443,
    "ldap": 389,
    "ldaps": 636,
    "imap": 143,
    "rdp": 3389,
    "mysql": 3306,
    "postgres": 5432,
    "postgresql": 5432,
    "redis": 6379,
    "mongodb": 27017,
    "kafka": 9092,
    "rabbitmq": 5672,
    "elasticsearch": 9200,
    "etcd": 2379,
    "kubelet": 10250,
    "prometheus": 9090,
    "memcached": 11211,
}

# Endings of file names, which otherwise look like host names.
FILE_ENDINGS = word_set(
    "yaml yml json py md txt log conf cfg xml csv pdf png jpg jpeg gif svg toml ini lock exe html js ts tsx "
    "go rs java tf zip gz"
)
