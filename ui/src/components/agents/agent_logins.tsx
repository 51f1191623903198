// The sign-ins of an agent at its hosted tool servers: in, with a page of the authorization server, and out.
import { useState } from "preact/hooks";
import { describeError, request } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { ProblemNote } from "../parts/states.tsx";
import type { Agent, AgentLogin } from "./agents.ts";

interface BegunSignIn {
  authorization_url: string;
}

export function AgentLogins({ agent, onChanged }: { agent: Agent; onChanged(): void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [address, setAddress] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const texts = t.views.agents;
  const run = async (action: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    setAddress(null);
    try {
      await action();
    } catch (error) {
      setProblem(describeError(error));
    }
    setBusy(false);
    onChanged();
  };
  const signIn = (login: AgentLogin) => {
    // Opened by the click itself: browsers block what opens later.
    const tab = window.open("about:blank", "_blank");
    void run(async () => {
      try {
        setAddress(await beginSignIn(agent, login, tab));
      } catch (error) {
        tab?.close();
        throw error;
      }
    });
  };
  return (
    <section>
      <h3>{texts.logins}</h3>
      {problem !== null && <ProblemNote text={problem} />}
      {address !== null && (
        <p class="note note-plain">
          <a href={address} target="_blank" rel="noreferrer">
            {texts.openSignIn}
          </a>
        </p>
      )}
      <ul class="tools">
        {agent.logins.map(login => (
          <li class="tool" key={login.server}>
            <div class="tool-head">
              <span>{describeLogin(login)}</span>
              {login.signed_in_at === null ? (
                <button type="button" class="small" disabled={isBusy} onClick={() => signIn(login)}>
                  {texts.signIn(login.server)}
                </button>
              ) : (
                <button type="button" class="small" disabled={isBusy} onClick={() => void run(() => signOut(agent, login))}>
                  {texts.signOut(login.server)}
                </button>
              )}
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function describeLogin(login: AgentLogin): string {
  const texts = t.views.agents;
  if (login.signed_in_at === null) return texts.notSignedIn;
  return login.owner === "installation" ? texts.signedInForAll : texts.signedIn;
}

/** Shows the authorization server in the tab; where the browser opened none, its address for a link. */
async function beginSignIn(agent: Agent, login: AgentLogin, tab: Window | null): Promise<string | null> {
  const begun = await request<BegunSignIn>("POST", loginPath(agent), { server: login.server });
  const address = begun.authorization_url;
  if (!/^https?:\/\//.test(address)) throw new Error(t.views.agents.badAddress);
  if (tab === null) return address;
  tab.opener = null; // what is shown there is another site
  tab.location.replace(address);
  return null;
}

async function signOut(agent: Agent, login: AgentLogin): Promise<void> {
  await request("DELETE", `${loginPath(agent)}?server=${encodeURIComponent(login.server)}`);
}

const loginPath = (agent: Agent) => `/v1/agents/${encodeURIComponent(agent.name)}/login`;
