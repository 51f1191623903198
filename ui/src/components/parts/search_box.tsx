// A search field of a view's list.
import { SearchIcon } from "./view_icons.tsx";

interface SearchBoxProps {
  label: string;
  value: string;
  onInput(value: string): void;
}

export function SearchBox({ label, value, onInput }: SearchBoxProps) {
  return (
    <div class="search-box">
      <SearchIcon />
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        value={value}
        onInput={event => onInput(event.currentTarget.value)}
      />
    </div>
  );
}
