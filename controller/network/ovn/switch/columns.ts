import type { Tables } from '../../../ovsdb/columns.js'

/** The tables and columns of Open vSwitch's database that Krater reads and writes (ovs-vswitchd.conf.db(5)). */
export const SWITCH = {
  Open_vSwitch: { external_ids: 'map', other_config: 'map' },
  Bridge: { name: 'text', datapath_type: 'text', ports: 'uuids' },
  Port: { name: 'text', interfaces: 'uuids' },
  Interface: {
    ...{ name: 'text', type: 'text', ofport: 'optional integer', error: 'optional text', external_ids: 'map' },
    ...{ mac: 'optional text', mtu_request: 'optional integer' },
  },
} as const satisfies Tables

export type SwitchTables = typeof SWITCH
