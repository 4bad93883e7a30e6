import { join } from 'node:path'
import { findImage, type Image } from '../images/find-image.js'

/** An image with what a virtual machine boots from. */
export type MachineImage = Pick<Image, 'tag' | 'id' | 'kernelOptions'> & {
  disk: string
  kernel: string
  initrd: string
}

/** @throws ComputeUnavailable if there is no image with the tag, or it cannot run here */
export function findMachineImage(stateDirectory: string, tag: string): MachineImage {
  const files = { disk: 'disk.qcow2', kernel: 'kernel', initrd: 'initrd' }
  const { id, kernelOptions, directory } = findImage(stateDirectory, tag, Object.values(files))
  const inside = (file: string) => join(directory, file)
  return {
    ...{ tag, id, kernelOptions },
    ...{ disk: inside(files.disk), kernel: inside(files.kernel), initrd: inside(files.initrd) },
  }
}
