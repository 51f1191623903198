// Settings as GET /v1/settings gives them: searched, and by group.

export interface Setting {
  name: string;
  value: string | null;
  source: string;
  secret: boolean;
  group: string;
  description: string;
}

export interface SettingGroup {
  name: string;
  settings: Setting[];
}

export function groupSettings(settings: Setting[], words: string, isOnlyChanged: boolean): SettingGroup[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, Setting[]>();
  for (const setting of settings) {
    if (isOnlyChanged && setting.source === "default") continue;
    const text = `${setting.name} ${setting.description} ${setting.group} ${setting.value ?? ""}`.toLowerCase();
    if (!wanted.every(word => text.includes(word))) continue;
    const group = groups.get(setting.group);
    if (group === undefined) groups.set(setting.group, [setting]);
    else group.push(setting);
  }
  return [...groups].map(([name, members]) => ({ name, settings: members }));
}
