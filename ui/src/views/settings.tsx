// Settings: how the page looks, how the server stands, and what is configured from where.
import { View } from "../components/parts/view.tsx";
import { PageSettings } from "../components/settings/page_settings.tsx";
import { ServerHealth } from "../components/settings/server_health.tsx";
import { ServerSettings } from "../components/settings/server_settings.tsx";
import { Link } from "../components/link.tsx";
import { pathOf } from "../state/route.ts";
import { t } from "../texts.ts";

export function SettingsView() {
  return (
    <View
      title={t.nav.settings}
      hint={t.views.settings.hint}
      actions={
        <Link to={pathOf("setup")} class="button small">
          {t.views.setup.title}
        </Link>
      }
    >
      <PageSettings />
      <ServerHealth />
      <ServerSettings />
    </View>
  );
}
