import { Option } from 'commander'

/** Whose networks and ports: a user of the instance's clouds.yaml. */
export const cloudOption = new Option('--cloud <cloud>', 'whose networks and ports')
  .choices(['krater', 'krater-admin'])
  .default('krater')
