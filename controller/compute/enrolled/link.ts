/** Both ends of the link between an enrolled host and its amphora, as host.sh makes it. Nobody else sees them. */
export const LINK = '169.254.77.0/30'
export const HOST_END = '169.254.77.1'
export const AMPHORA_END = '169.254.77.2'
