// The jobs behind the stage gates of a job: their cycle as planned and as measured.

import { Panel, Properties } from "../parts/basics";
import type { Gates, GatedStage } from "../types";
import { JobLink } from "./home";

const ms = (us: number) => `${(us / 1e3).toFixed(1)} ms`;
const NAMES = { data: "data", gpu: "GPU", net: "network" };

export function GatesPanel({ job, gates }: { job: number; gates: Gates }) {
  const { planned_period: planned, measured_period: measured, wait_per_step: wait, group } = gates;
  if (!group) return null;
  const { in_turn_period, planned_efficiency, measured_efficiency, in_turn_efficiency, members } = group;
  const part = (efficiency: number) => efficiency.toFixed(3);
  const cycle = Math.max(planned, measured ?? 0);
  return (
    <Panel title="Stage gates">
      <p class="sentence">In each period, every job of the group does one step: one loads data while another computes.</p>
      <Properties
        of={[
          ["Period", measured ? `${ms(measured)}, planned ${ms(planned)}` : `${ms(planned)} planned, not measured yet`],
          ["One after the other", ms(in_turn_period)],
          ["Efficiency γ", `${measured_efficiency ? `${part(measured_efficiency)}, ` : ""}planned ${part(planned_efficiency)}, one after the other ${part(in_turn_efficiency)}`],
          ["Wait at gates", `${ms(wait)} per step`],
        ]}
      />
      <ul class="gates">
        {members.map((member) => (
          <li key={member.job}>
            {member.job === job ? <b>This job</b> : <JobLink job={{ id: member.job, name: member.name }} />}
            <svg viewBox={`0 0 ${cycle} 26`} preserveAspectRatio="none" role="img" aria-label={describe(member.stages)}>
              <rect class="lane" width={planned} height="12" />
              {measured && <rect class="lane" y="14" width={measured} height="12" />}
              {member.stages.map((s) => (
                <>
                  <Stage of={s} begin={s.planned_begin} time={s.planned} period={planned} y={0} />
                  {measured && s.measured && <Stage of={s} begin={s.measured_begin!} time={s.measured} period={measured} y={14} />}
                </>
              ))}
            </svg>
          </li>
        ))}
      </ul>
      <div class="gates-axis muted">
        <span>0 ms</span>
        <span>{ms(cycle)}</span>
      </div>
      <p class="timeline-key muted small">
        {Object.entries(NAMES).map(([stage, name]) => (
          <>
            <i class={`stage-${stage}`} /> {name}{" "}
          </>
        ))}
        · above planned{measured && ", below measured"}
      </p>
    </Panel>
  );
}

/** A stage in a lane; one that extends into the next cycle continues at the beginning. */
function Stage({ of, begin, time, period, y }: { of: GatedStage; begin: number; time: number; period: number; y: number }) {
  const from = begin % period;
  const width = Math.min(time, period - from);
  const title = <title>{`${NAMES[of.stage]} ${ms(time)}`}</title>;
  return (
    <g class={`stage-${of.stage}`}>
      {title}
      <rect x={from} y={y} width={width} height="12" />
      {time > width && <rect y={y} width={Math.min(time - width, from)} height="12" />}
    </g>
  );
}

function describe(stages: GatedStage[]): string {
  return stages.map((s) => `${NAMES[s.stage]} ${ms(s.planned)}${s.measured ? `, measured ${ms(s.measured)}` : " planned"}`).join("; ");
}
