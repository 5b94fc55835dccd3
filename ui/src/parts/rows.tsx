// A long list of rows of equal height; only rows in view are in the DOM.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export function Rows({
  label,
  count,
  height,
  row,
  class: more = "",
  stick = false,
  show,
  onLeaveEnd,
}: {
  label: string;
  count: number;
  height: number;
  row: (index: number) => ComponentChildren;
  class?: string;
  /** Stay at the end as rows are added. */
  stick?: boolean;
  /** Scroll to this row when it changes. */
  show?: number;
  /** Called when the user scrolls away from the end. */
  onLeaveEnd?: () => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const measure = () => {
    const element = box.current;
    if (element) setView({ top: element.scrollTop, height: element.clientHeight });
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (stick && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [count, stick]);
  useLayoutEffect(() => {
    if (show !== undefined && show >= 0 && box.current) {
      box.current.scrollTop = Math.max(0, show * height - box.current.clientHeight / 3);
    }
  }, [show]);
  const first = Math.max(0, Math.floor(view.top / height) - 10);
  const last = Math.min(count, Math.ceil((view.top + view.height) / height) + 10);
  const shown = [];
  for (let i = first; i < last; i += 1) shown.push(row(i));
  return (
    <div
      ref={box}
      class={`rows ${more}`}
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={measure}
      onWheel={(event) => event.deltaY < 0 && onLeaveEnd?.()}
      onKeyDown={(event) => ["PageUp", "ArrowUp", "Home"].includes(event.key) && onLeaveEnd?.()}
    >
      <div style={{ height: `${first * height}px` }} />
      {shown}
      <div style={{ height: `${Math.max(0, count - last) * height}px` }} />
    </div>
  );
}
