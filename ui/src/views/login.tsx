// The sign-in: asks for the key once; the address stays, so that the page goes on where it was.
import { useEffect, useRef, useState } from "preact/hooks";
import { describeError, request, RestError } from "../api/rest.ts";
import { noteSignIn } from "../api/session.ts";
import { ProblemNote } from "../components/parts/states.tsx";
import { KeyIcon } from "../components/parts/view_icons.tsx";
import { loadInbox } from "../state/inbox.ts";
import { t } from "../texts.ts";

export function LoginView() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await request("POST", "/v1/session", { key: key.trim() });
      noteSignIn();
      void loadInbox();
    } catch (error) {
      const isWrong = error instanceof RestError && error.status === 401;
      setProblem(isWrong ? t.keyWrong : describeError(error));
      setBusy(false);
      input.current?.select();
    }
  };
  return (
    <main class="login" id="main">
      <form class="login-card" onSubmit={event => void submit(event)}>
        <div class="login-icon">
          <KeyIcon />
        </div>
        <p class="login-product">{t.product}</p>
        <h1>{t.keyTitle}</h1>
        <p class="hint" id="key-hint">
          {t.keyHint}
        </p>
        <div class="field">
          <label for="key">{t.keyLabel}</label>
          <input
            ref={input}
            id="key"
            type="password"
            autocomplete="current-password"
            required
            aria-describedby="key-hint"
            aria-invalid={problem !== null}
            value={key}
            onInput={event => setKey(event.currentTarget.value)}
          />
        </div>
        {problem !== null && <ProblemNote text={problem} />}
        <button type="submit" class="primary" disabled={isBusy || !key.trim()}>
          {t.signIn}
        </button>
      </form>
    </main>
  );
}
