// Finding by a few letters.
/** The entries whose label has all the words. */
export function matchLabels<T extends { label: string }>(entries: T[], text: string): T[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter(entry => words.every(word => entry.label.toLowerCase().includes(word)));
}
