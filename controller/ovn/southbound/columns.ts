import type { Tables } from '../../ovsdb/columns.js'

/** The tables and columns of OVN's southbound database that Krater reads (ovn-sb(5)). It writes none. */
export const SOUTHBOUND = {
  SB_Global: { nb_cfg: 'integer' },
  Chassis: { name: 'text', hostname: 'text', other_config: 'map' },
  Chassis_Private: { name: 'text', chassis: 'optional uuid', nb_cfg: 'integer', nb_cfg_timestamp: 'integer' },
  Service_Monitor: {
    ...{ ip: 'text', port: 'integer', protocol: 'optional text', logical_port: 'text', src_ip: 'text' },
    ...{ status: 'optional text', options: 'map' },
  },
} as const satisfies Tables

export type Southbound = typeof SOUTHBOUND
