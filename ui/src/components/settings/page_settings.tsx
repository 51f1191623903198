// What this browser keeps: how the page looks, notifications, and the session.
import { request } from "../../api/rest.ts";
import { isSignedOut, type Session } from "../../api/session.ts";
import { isEnabled, isSupported, toggleNotifications } from "../../state/notifications.ts";
import { useResource } from "../../state/resource.ts";
import { theme, type Theme } from "../../state/theme.ts";
import { t } from "../../texts.ts";
import { ChoiceBar } from "../parts/choice_bar.tsx";

const THEMES: Theme[] = ["system", "light", "dark"];

export function PageSettings() {
  const session = useResource<Session>("/v1/session");
  const texts = t.views.settings;
  const signOut = async () => {
    await request("DELETE", "/v1/session");
    isSignedOut.value = true;
  };
  return (
    <section class="panel" aria-label={texts.page}>
      <PanelLine title={t.appearance} hint={texts.themeHint}>
        <ChoiceBar
          label={t.appearance}
          choices={THEMES.map(name => ({ value: name, label: t.theme[name] }))}
          value={theme.value}
          onChoose={name => {
            theme.value = name;
          }}
        />
      </PanelLine>
      <Notifications />
      {session.value?.login === "key" && (
        <PanelLine title={texts.session} hint={texts.sessionHint}>
          <button type="button" onClick={() => void signOut()}>
            {t.signOut}
          </button>
        </PanelLine>
      )}
    </section>
  );
}

function Notifications() {
  const texts = t.views.settings;
  return (
    <PanelLine title={texts.notifications} hint={isSupported ? texts.notificationHint : t.notifications.denied}>
      <label class="switch">
        <input
          type="checkbox"
          role="switch"
          checked={isEnabled.value}
          disabled={!isSupported}
          onChange={() => void toggleNotifications()}
        />
        <span class="visually-hidden">{texts.notifications}</span>
      </label>
    </PanelLine>
  );
}

function PanelLine({ title, hint, children }: { title: string; hint: string; children: preact.ComponentChildren }) {
  return (
    <div class="panel-line">
      <div>
        <h3>{title}</h3>
        <p class="hint">{hint}</p>
      </div>
      {children}
    </div>
  );
}
