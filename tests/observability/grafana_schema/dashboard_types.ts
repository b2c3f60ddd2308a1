// What Grafana's schema says of the parts that our dashboards have, as JSON has them: enums are their values.
import type { Dashboard, Panel, RowPanel } from './node_modules/@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen';
import type { Options as StatOptions } from './node_modules/@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type {
  FieldConfig as TimeSeriesField,
  Options as TimeSeriesOptions,
} from './node_modules/@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer Element)[]
    ? Plain<Element>[]
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

type FieldConfig = NonNullable<Panel['fieldConfig']>;

// The schema leaves a kind's own options and fields open.
type PanelOf<Options, Field> = Plain<Omit<Panel, 'options' | 'fieldConfig'>> & {
  options: Plain<Options>;
  fieldConfig: Plain<Omit<FieldConfig, 'defaults'>> & {
    defaults: Plain<Omit<FieldConfig['defaults'], 'custom'>> & { custom?: Plain<Field> };
  };
};

export type TimeSeriesPanel = PanelOf<TimeSeriesOptions, TimeSeriesField>;
export type StatPanel = PanelOf<StatOptions, never>;
export type Row = Plain<Omit<RowPanel, 'panels'>>;
export type Rest = Plain<Omit<Dashboard, 'panels'>>;
