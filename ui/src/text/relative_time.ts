// Moments as people say them, next to now.

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

/** "5 minutes ago", "in 2 hours"; below a minute "now". */
export function formatRelative(iso: string, now: number, locale?: string): string {
  const seconds = (Date.parse(iso) - now) / 1000;
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return format.format(Math.trunc(seconds / size), unit);
  }
  return format.format(0, "second");
}

/** A number of seconds as the longest unit that fits: 3600 is "1 hour", 5400 "90 minutes". */
export function formatInterval(seconds: number, locale?: string): string {
  for (const [unit, size] of UNITS) {
    if (seconds >= size && seconds % size === 0) return formatUnit(seconds / size, unit, locale);
  }
  return formatUnit(Math.round(seconds), "second", locale);
}

function formatUnit(count: number, unit: string, locale?: string): string {
  return new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: "long" }).format(count);
}

/** Bytes with the unit that people expect of files. */
export function formatBytes(bytes: number, locale?: string): string {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  let size = bytes;
  let index = 0;
  while (size >= 1000 && index < units.length - 1) {
    size /= 1000;
    index += 1;
  }
  const options = { style: "unit", unit: units[index]!, unitDisplay: index === 0 ? "long" : "short", maximumFractionDigits: size < 10 ? 1 : 0 } as const;
  return new Intl.NumberFormat(locale, options).format(size);
}
