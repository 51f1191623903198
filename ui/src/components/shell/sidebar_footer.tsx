// At the foot of the sidebar: theme, notifications, help.
import { isEnabled, toggleNotifications } from "../../state/notifications.ts";
import { isHelpOpen } from "../../state/shell.ts";
import { type Theme, theme } from "../../state/theme.ts";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { Icon, type IconName } from "../icons.tsx";

const NEXT: { [theme in Theme]: Theme } = { system: "light", light: "dark", dark: "system" };
const ICONS: { [theme in Theme]: IconName } = { system: "system", light: "sun", dark: "moon" };

export function SidebarFooter() {
  return (
    <div class="sidebar-footer">
      <IconButton label={t.themeSwitch(t.theme[theme.value])} onClick={() => (theme.value = NEXT[theme.value])}>
        <Icon name={ICONS[theme.value]} />
      </IconButton>
      <IconButton
        label={isEnabled.value ? t.notifications.off : t.notifications.on}
        pressed={isEnabled.value}
        onClick={() => void toggleNotifications()}
      >
        <Icon name="bell" />
      </IconButton>
      <IconButton label={t.shortcuts} onClick={() => (isHelpOpen.value = true)}>
        <Icon name="help" />
      </IconButton>
    </div>
  );
}
