import type { Selection } from '../packages.js'

/** What a machine of the lab has beside Debian's minimum and the packages of a controller. */
const PACKAGES = [
  'busybox-static',
  'ca-certificates',
  'curl',
  'dbus',
  'kmod',
  'less',
  'netbase',
  'python3-barbicanclient',
  'python3-octaviaclient',
  'python3-openstackclient',
  'sudo',
  // What DHCP says of name servers is otherwise lost.
  'systemd-resolved',
  'systemd-sysv',
  'udev',
]

/**
 * @param services Debian's packages that a controller needs
 * @param script the path of images/lab/customize.sh
 */
export const selectLab = (services: readonly string[], script: string): Selection => ({
  variant: 'minbase',
  packages: [...PACKAGES, ...services].sort(),
  script,
})
