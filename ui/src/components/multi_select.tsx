// Several of some options: each a box to tick.
interface MultiSelectProps {
  name: string;
  labelledBy: string;
  options: string[];
  chosen: string[];
  onChange(chosen: string[]): void;
}

export function MultiSelect({ name, labelledBy, options, chosen, onChange }: MultiSelectProps) {
  const toggle = (option: string, isChosen: boolean) => {
    onChange(options.filter(each => (each === option ? isChosen : chosen.includes(each))));
  };
  return (
    <div class="options" role="group" aria-labelledby={labelledBy}>
      {options.map(option => (
        <label key={option} class="option">
          <input
            type="checkbox"
            name={name}
            checked={chosen.includes(option)}
            onChange={event => toggle(option, event.currentTarget.checked)}
          />
          {option}
        </label>
      ))}
    </div>
  );
}
