// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"

	"github.com/roux-engine/roux/fault"
)

// repair reads a damaged or encrypted file with the forgiving parser and writes
// a sound copy without encryption; decrypted says that the file had one.
func repair(data []byte) (fixed []byte, decrypted bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic in repair: %v", v), "the PDF file is damaged beyond repair")
		}
	}()
	api.DisableConfigDir()
	conf := model.NewDefaultConfiguration()
	conf.Cmd = model.OPTIMIZE
	conf.ValidationMode = model.ValidationRelaxed
	conf.Offline = true
	conf.RemoveEncryption = true
	ctx, err := api.ReadContext(bytes.NewReader(data), conf)
	if errors.Is(err, pdfcpu.ErrWrongPassword) {
		return nil, false, encrypted(err)
	}
	if err != nil {
		return nil, false, err
	}
	decrypted = ctx.E != nil
	var out bytes.Buffer
	if err := api.WriteContext(ctx, &out); err != nil {
		return nil, false, err
	}
	return out.Bytes(), decrypted, nil
}
