// A sortable table that hides less important columns on narrow screens.

import type { ComponentChildren } from "preact";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Aligned right, with digits of equal width. */
  number?: boolean;
  /** Hidden on narrow screens. */
  wide?: boolean;
  /** Sort keys of the server: at the first click, and at the second. */
  sort?: [string, string?];
  /** Content of the header cell in place of the title. */
  head?: ComponentChildren;
  class?: string;
}

export function Table<T>({
  label,
  columns,
  rows,
  rowKey,
  sort,
  onSort,
  rowClass,
}: {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string | number;
  sort?: string;
  onSort?: (key: string) => void;
  rowClass?: (row: T) => string;
}) {
  const classes = (c: Column<T>) => `${c.number ? "number" : ""} ${c.wide ? "wide" : ""} ${c.class ?? ""}`;
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.title} scope="col" class={classes(c)} aria-sort={ariaSort(c, sort)}>
                <Heading column={c} sort={sort} onSort={onSort} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} class={rowClass?.(row)}>
              {columns.map((c) => (
                <td key={c.title} class={classes(c)}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ariaSort<T>(column: Column<T>, sort?: string) {
  if (!sort || !column.sort?.includes(sort)) return undefined;
  return sort.startsWith("-") ? "descending" : "ascending";
}

function Heading<T>({ column, sort, onSort }: { column: Column<T>; sort?: string; onSort?: (key: string) => void }) {
  if (column.head !== undefined) return <>{column.head}</>;
  if (!column.sort || !onSort) return <>{column.title}</>;
  const [first, second] = column.sort;
  const isOn = sort !== undefined && column.sort.includes(sort);
  const next = sort === first && second ? second : first;
  return (
    <button type="button" class="sort" onClick={() => onSort(next)}>
      {column.title}
      <span aria-hidden="true">{isOn ? (sort?.startsWith("-") ? " ↓" : " ↑") : ""}</span>
    </button>
  );
}
